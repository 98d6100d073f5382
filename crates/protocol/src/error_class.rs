//! Classes of a user's mistakes: a rule gives the class, and a failure message carries it.

/// The class of a mistake, from which the Python exception class that `PyTorch` raises follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// A mistake about neither shapes nor dtypes.
    Runtime,
    Shape,
    Dtype,
    Index,
    Value,
    Type,
    /// A dtype for which `PyTorch` has no kernel.
    UnsupportedDtype,
}

impl ErrorClass {
    /// Name of `PyTorch`'s exception class.
    pub const fn python(self) -> &'static str {
        match self {
            Self::Runtime | Self::Shape | Self::Dtype => "RuntimeError",
            Self::Index => "IndexError",
            Self::Value => "ValueError",
            Self::Type => "TypeError",
            Self::UnsupportedDtype => "NotImplementedError",
        }
    }
}
