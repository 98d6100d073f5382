//! Errors of the rules: a user's mistakes.

use crate::Dtype;
use crate::error_class::ErrorClass;

/// A user's mistake: `PyTorch`'s class, and a text that begins with `PyTorch`'s.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct RuleError {
    pub class: ErrorClass,
    pub text: String,
}

impl RuleError {
    #[cold]
    fn new(class: ErrorClass, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }

    pub(in crate::rules) fn runtime(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Runtime, text)
    }

    pub(in crate::rules) fn shape(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Shape, text)
    }

    pub(in crate::rules) fn dtype(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Dtype, text)
    }

    pub(in crate::rules) fn index(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Index, text)
    }

    pub(in crate::rules) fn value(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Value, text)
    }

    pub(in crate::rules) fn kind(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::Type, text)
    }

    pub(in crate::rules) fn unsupported_dtype(text: impl Into<String>) -> Self {
        Self::new(ErrorClass::UnsupportedDtype, text)
    }

    /// The error where a kernel has no version for a dtype.
    pub(in crate::rules) fn kernel(kernel: &str, dtype: Dtype) -> Self {
        Self::unsupported_dtype(format!(
            "\"{kernel}\" not implemented for '{}'",
            dtype.scalar_type_name()
        ))
    }

    pub(in crate::rules) fn mixed(expected: Dtype, found: Dtype) -> Self {
        Self::dtype(format!(
            "expected scalar type {} but found {}",
            expected.scalar_type_name(),
            found.scalar_type_name()
        ))
    }
}
