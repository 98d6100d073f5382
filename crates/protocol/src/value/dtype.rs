//! Element types, scalars, and `PyTorch`'s type promotion lattice. The rules decide which operands
//! take part in a promotion.

/// Element type of a value. The numbers are part of the wire format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Dtype {
    Bool = 0,
    U8 = 1,
    I8 = 2,
    I16 = 3,
    I32 = 4,
    I64 = 5,
    F16 = 6,
    Bf16 = 7,
    F32 = 8,
    F64 = 9,
    C64 = 10,
    C128 = 11,
}

/// The promotion category of `PyTorch`: a higher one wins whatever the widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    Bool,
    Integer,
    Float,
    Complex,
}

impl Dtype {
    /// Dtype of a Python float; `PyTorch`'s default dtype.
    pub const DEFAULT: Self = Self::F32;

    pub const ALL: [Self; 12] = [
        Self::Bool,
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::C64,
        Self::C128,
    ];

    /// The wire's number.
    pub fn code(self) -> u8 {
        match self {
            Self::Bool => 0,
            Self::U8 => 1,
            Self::I8 => 2,
            Self::I16 => 3,
            Self::I32 => 4,
            Self::I64 => 5,
            Self::F16 => 6,
            Self::Bf16 => 7,
            Self::F32 => 8,
            Self::F64 => 9,
            Self::C64 => 10,
            Self::C128 => 11,
        }
    }

    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }

    /// Bytes of an element.
    pub fn size(self) -> u64 {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    pub fn category(self) -> Category {
        match self {
            Self::Bool => Category::Bool,
            Self::U8 | Self::I8 | Self::I16 | Self::I32 | Self::I64 => Category::Integer,
            Self::F16 | Self::Bf16 | Self::F32 | Self::F64 => Category::Float,
            Self::C64 | Self::C128 => Category::Complex,
        }
    }

    pub fn is_float(self) -> bool {
        self.category() == Category::Float
    }

    pub fn is_complex(self) -> bool {
        self.category() == Category::Complex
    }

    /// Returns true for half precision, whose complex dtypes GT does not have.
    pub fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16)
    }

    /// Returns true if its values have gradients: floats and complex numbers.
    pub fn is_differentiable(self) -> bool {
        self.category() >= Category::Float
    }

    /// The complex dtype whose parts have a float's precision; complex64 for half precision.
    #[must_use]
    pub fn to_complex(self) -> Self {
        match self {
            Self::F64 | Self::C128 => Self::C128,
            Self::Bool
            | Self::U8
            | Self::I8
            | Self::I16
            | Self::I32
            | Self::I64
            | Self::F16
            | Self::Bf16
            | Self::F32
            | Self::C64 => Self::C64,
        }
    }

    /// The dtype that holds both, by `PyTorch`'s lattice.
    #[must_use]
    pub fn promote(self, other: Self) -> Self {
        // The variants are in the lattice's order; only three pairs need a third type.
        match (self.min(other), self.max(other)) {
            (Self::U8, Self::I8) => Self::I16,
            (Self::F16, Self::Bf16) => Self::F32,
            (Self::F64, Self::C64) => Self::C128,
            (_, wider) => wider,
        }
    }

    /// The trace's name: `f32`.
    pub fn short(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::C64 => "c64",
            Self::C128 => "c128",
        }
    }

    pub fn from_short(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.short() == name)
    }

    /// `PyTorch`'s name: `float32`.
    pub fn torch_name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::C64 => "complex64",
            Self::C128 => "complex128",
        }
    }

    /// `PyTorch`'s name in messages: `Float`, `Long`.
    pub fn scalar_type_name(self) -> &'static str {
        match self {
            Self::Bool => "Bool",
            Self::U8 => "Byte",
            Self::I8 => "Char",
            Self::I16 => "Short",
            Self::I32 => "Int",
            Self::I64 => "Long",
            Self::F16 => "Half",
            Self::Bf16 => "BFloat16",
            Self::F32 => "Float",
            Self::F64 => "Double",
            Self::C64 => "ComplexFloat",
            Self::C128 => "ComplexDouble",
        }
    }

    /// The C++ type in `PyTorch`'s messages: `float`, `long int`.
    pub fn cpp_name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "unsigned char",
            Self::I8 => "signed char",
            Self::I16 => "short int",
            Self::I32 => "int",
            Self::I64 => "long int",
            Self::F16 => "c10::Half",
            Self::Bf16 => "c10::BFloat16",
            Self::F32 => "float",
            Self::F64 => "double",
            Self::C64 => "c10::complex<float>",
            Self::C128 => "c10::complex<double>",
        }
    }

    /// Smallest and largest value of a bool or integer; for a float the largest magnitude up to
    /// which every integer is exact: the range that `randint` may draw from.
    pub fn integer_range(self) -> (i128, i128) {
        match self {
            Self::Bool => (0, 1),
            Self::U8 => (0, i128::from(u8::MAX)),
            Self::I8 => (i128::from(i8::MIN), i128::from(i8::MAX)),
            Self::I16 => (i128::from(i16::MIN), i128::from(i16::MAX)),
            Self::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
            Self::I64 | Self::Bf16 | Self::F32 | Self::F64 | Self::C64 | Self::C128 => {
                (i128::from(i64::MIN), i128::from(i64::MAX))
            }
            Self::F16 => (-65504, 65504),
        }
    }

    /// The largest finite value of a float, or of a complex number's parts; infinite for the others.
    fn float_max(self) -> f64 {
        match self {
            Self::Bool | Self::U8 | Self::I8 | Self::I16 | Self::I32 | Self::I64 => f64::INFINITY,
            Self::F16 => 65504.0,
            // 255 * 2^120
            Self::Bf16 => 3.389_531_389_251_535_5e38,
            Self::F32 | Self::C64 => f64::from(f32::MAX),
            Self::F64 | Self::C128 => f64::MAX,
        }
    }
}

/// `PyTorch`'s promotion of any number of operands, added one at a time (`torch.result_type`).
///
/// Tensors with dimensions decide first, then zero-dimensional ones, then numbers; a later class
/// only matters if its category is higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promotion {
    dimensioned: Option<Dtype>,
    zero_dim: Option<Dtype>,
    scalar: Option<Dtype>,
}

impl Promotion {
    pub fn tensor(&mut self, dtype: Dtype, zero_dim: bool) {
        let class = if zero_dim { &mut self.zero_dim } else { &mut self.dimensioned };
        *class = Some(class.map_or(dtype, |before| before.promote(dtype)));
    }

    pub fn scalar(&mut self, scalar: Scalar) {
        let dtype = scalar.dtype();
        self.scalar = Some(self.scalar.map_or(dtype, |before| before.promote(dtype)));
    }

    /// The result; float32 if there was no operand.
    pub fn dtype(self) -> Dtype {
        let lower = Self::combine(self.zero_dim, self.scalar);
        Self::combine(self.dimensioned, lower).unwrap_or(Dtype::DEFAULT)
    }

    fn combine(higher: Option<Dtype>, lower: Option<Dtype>) -> Option<Dtype> {
        let (Some(first), Some(second)) = (higher, lower) else { return higher.or(lower) };
        match (first.category(), second.category()) {
            // The complex dtype keeps the float's precision.
            (Category::Float, Category::Complex) => Some(first.to_complex()),
            (category, other) if other > category => Some(first.promote(second)),
            _ => higher,
        }
    }
}

/// A number without a tensor, as the user wrote it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    Bool(bool),
    Int(i64),
    Float(f64),
}

impl Scalar {
    /// The dtype that the number contributes to promotion.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::Bool(_) => Dtype::Bool,
            Self::Int(_) => Dtype::I64,
            Self::Float(_) => Dtype::DEFAULT,
        }
    }

    /// Python's name of its type.
    pub fn python_type(self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
        }
    }

    /// Value as a float; integers above 2^53 are rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Bool(value) => f64::from(u8::from(value)),
            Self::Int(value) => int_to_f64(value),
            Self::Float(value) => value,
        }
    }

    /// Returns true if `PyTorch` would store it in `dtype`: fractions are truncated, overflow is
    /// refused (u8 wraps negatives).
    pub fn fits(self, dtype: Dtype) -> bool {
        let (low, high) = dtype.integer_range();
        let low = if dtype == Dtype::U8 { -high } else { low };
        match (self, dtype.category()) {
            (_, Category::Bool)
            | (Self::Bool(_), Category::Integer | Category::Float | Category::Complex) => true,
            (Self::Int(value), Category::Integer) => (low..=high).contains(&i128::from(value)),
            (Self::Float(value), Category::Integer) => {
                let (low, high) = (i128_to_f64(low), i128_to_f64(high));
                // i64::MAX rounds up to 2^63, which no longer fits.
                value >= low - 1.0
                    && value.trunc() >= low
                    && value.trunc() <= high
                    && value < 9.223_372_036_854_776e18
            }
            (Self::Int(_) | Self::Float(_), Category::Float | Category::Complex) => {
                let value = self.as_f64();
                !value.is_finite() || value.abs() <= dtype.float_max()
            }
        }
    }

    pub fn category(self) -> Category {
        match self {
            Self::Bool(_) => Category::Bool,
            Self::Int(_) => Category::Integer,
            Self::Float(_) => Category::Float,
        }
    }
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "rounding is intended")]
pub(crate) fn int_to_f64(value: i64) -> f64 {
    value as f64
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "rounding is intended")]
fn i128_to_f64(value: i128) -> f64 {
    value as f64
}
