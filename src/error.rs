//! The errors of the crate.

/// A setting that makes no sense, found when it is built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} cannot be {value}: {reason}")]
pub struct ConfigError {
    setting: &'static str,
    value: String,
    reason: &'static str,
}

impl ConfigError {
    pub(crate) fn new(
        setting: &'static str,
        value: impl std::fmt::Display,
        reason: &'static str,
    ) -> Self {
        Self { setting, value: value.to_string(), reason }
    }

    /// The setting, as its builder method is called.
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    /// The offending value, as it was given.
    pub fn value(&self) -> &str {
        &self.value
    }
}
