//! What a user's mistake is about: its rule says it, and a failure that travels carries it.

/// The class of a mistake: what it is about, so that the Python exception class that `PyTorch` raises follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// What concerns neither shapes nor dtypes.
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
    /// `PyTorch`'s class.
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
