//! Headers of safetensors files, read and written by the format's own crate;
//! `gt/tensors/safetensors_file.py` reads and writes the tensors' bytes. A header comes from outside: any
//! fault in it is a `ValueError` that names the fault.

use crate::client::value::dtype::{self, DtypeArg, PyDtype};
use gt_protocol::Dtype;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype as FileDtype, Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

/// The entry of a header that is not a tensor.
const METADATA: &str = "__metadata__";
/// Alignment in bytes of a header's length, so that a reader may map the data behind it.
const ALIGNMENT: usize = 8;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_safetensors_header, module)?)?;
    module.add_function(wrap_pyfunction!(build_safetensors_header, module)?)
}

/// A tensor of a file: name, dtype, shape, and the byte offsets from the data's start at which it
/// begins and ends.
type TensorEntry = (String, Py<PyDtype>, Vec<usize>, usize, usize);

/// The tensors that a header describes, in its order, and its metadata; `data_bytes` follow the header in the file.
#[pyfunction]
fn parse_safetensors_header<'py>(
    py: Python<'py>,
    header: &[u8],
    data_bytes: usize,
) -> PyResult<(Vec<TensorEntry>, Bound<'py, PyDict>)> {
    let header = FileHeader::parse(header).map_err(PyValueError::new_err)?;
    header.check(data_bytes).map_err(PyValueError::new_err)?;
    let metadata = PyDict::new(py);
    for (key, value) in &header.metadata {
        metadata.set_item(key, value)?;
    }
    let mut entries = Vec::with_capacity(header.tensors.len());
    for (name, info) in header.tensors {
        let Some(dtype) = dtype_of(info.dtype) else {
            return Err(PyValueError::new_err(format!(
                "tensor {name:?} has dtype {}, which GT does not have",
                info.dtype
            )));
        };
        let (start, end) = info.data_offsets;
        entries.push((name, dtype::object(py, dtype)?, info.shape, start, end));
    }
    Ok((entries, metadata))
}

/// Builds the header of a file with these tensors; returns its bytes, and the names in the order of
/// their data.
#[pyfunction]
fn build_safetensors_header(
    py: Python<'_>,
    tensors: Vec<(String, DtypeArg, Vec<usize>)>,
    metadata: Vec<(String, String)>,
) -> PyResult<(Bound<'_, PyBytes>, Vec<String>)> {
    let (bytes, order) = FileHeader::new(tensors, metadata).map_err(PyValueError::new_err)?.build();
    Ok((PyBytes::new(py, &bytes), order))
}

/// The contents of a header.
struct FileHeader {
    metadata: Vec<(String, String)>,
    tensors: Vec<(String, TensorInfo)>,
}

impl FileHeader {
    fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text)
            .map_err(|error| format!("its header is not UTF-8: {error}"))?;
        serde_json::from_str(text).map_err(|error| {
            if error.is_data() {
                format!("its header does not describe tensors: {error}")
            } else {
                format!("its header is not JSON: {error}")
            }
        })
    }

    /// Lays the tensors out one after the other: those of wide elements first, so that all are
    /// aligned.
    fn new(
        tensors: Vec<(String, DtypeArg, Vec<usize>)>,
        metadata: Vec<(String, String)>,
    ) -> Result<Self, String> {
        let mut tensors: Vec<(String, TensorInfo)> = tensors
            .into_iter()
            .map(|(name, dtype, shape)| {
                let dtype = file_dtype(dtype.0).ok_or_else(|| {
                    let dtype = dtype.0.torch_name();
                    format!("{name:?} is of {dtype}, for which the format has no name")
                })?;
                Ok((name, TensorInfo { dtype, shape, data_offsets: (0, 0) }))
            })
            .collect::<Result<_, String>>()?;
        let mut places: Vec<usize> = (0..tensors.len()).collect();
        places.sort_by_key(|&place| std::cmp::Reverse(tensors[place].1.dtype));
        let mut start = 0;
        for place in places {
            let (_, info) = &mut tensors[place];
            let bytes = info.shape.iter().product::<usize>() * info.dtype.bitsize() / 8;
            info.data_offsets = (start, start + bytes);
            start += bytes;
        }
        let header = Self { metadata, tensors };
        header.check(start)?;
        Ok(header)
    }

    /// Checks by the crate's own rules: the tensors fill the data without gaps or overlaps, each
    /// with the bytes of its shape and dtype.
    fn check(&self, data_bytes: usize) -> Result<(), String> {
        let mut tensors = self.tensors.clone();
        tensors.sort_by_key(|(_, info)| info.data_offsets);
        let metadata =
            Metadata::new(None, tensors.clone()).map_err(|error| reason(&error, &tensors))?;
        if metadata.data_len() != data_bytes {
            return Err(format!(
                "its tensors take {} bytes and the file has {data_bytes} of data",
                metadata.data_len()
            ));
        }
        Ok(())
    }

    /// The bytes before the data, and the order of the data.
    fn build(&self) -> (Vec<u8>, Vec<String>) {
        let mut text = serde_json::to_vec(self).expect("strings and integers are JSON");
        text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
        let length = u64::try_from(text.len()).expect("a length in memory fits 64 bits");
        let mut order: Vec<&(String, TensorInfo)> = self.tensors.iter().collect();
        order.sort_by_key(|(_, info)| info.data_offsets);
        let order = order.into_iter().map(|(name, _)| name.clone()).collect();
        ([&length.to_le_bytes(), text.as_slice()].concat(), order)
    }
}

/// The crate's error, with the tensor that it is about and the values in the file.
fn reason(error: &SafeTensorError, tensors: &[(String, TensorInfo)]) -> String {
    let place = tensors.iter().position(|(name, info)| {
        if let SafeTensorError::InvalidOffset(wrong) = error {
            return name == wrong;
        }
        let (start, end) = info.data_offsets;
        let alone = TensorInfo { data_offsets: (0, end.saturating_sub(start)), ..info.clone() };
        Metadata::new(None, vec![(name.clone(), alone)]).is_err()
    });
    let Some(place) = place else { return error.to_string() };
    let (name, TensorInfo { dtype, shape, data_offsets: (start, end) }) = &tensors[place];
    let before = place.checked_sub(1).map_or(0, |before| tensors[before].1.data_offsets.1);
    let conflict = match start.cmp(&before) {
        std::cmp::Ordering::Less => {
            format!(", which overlaps the one before: that ends at {before}")
        }
        std::cmp::Ordering::Greater => {
            format!(", which leaves a gap: what is before ends at {before}")
        }
        std::cmp::Ordering::Equal => String::new(),
    };
    format!(
        "tensor {name:?} of dtype {dtype} and shape {shape:?} has offsets [{start}, {end}]{conflict} ({error})"
    )
}

impl Serialize for FileHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            let metadata: serde_json::Map<_, _> = self
                .metadata
                .iter()
                .map(|(key, value)| (key.clone(), value.clone().into()))
                .collect();
            map.serialize_entry(METADATA, &metadata)?;
        }
        for (name, info) in &self.tensors {
            map.serialize_entry(name, info)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for FileHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = FileHeader;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object with an entry for each tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FileHeader, A::Error> {
                let mut header = FileHeader { metadata: Vec::new(), tensors: Vec::new() };
                let mut names = HashSet::new();
                while let Some(name) = next_name(&mut map, &mut names)? {
                    if name == METADATA {
                        header.metadata = map.next_value::<Pairs<String>>()?.0;
                        continue;
                    }
                    let info = map.next_value().map_err(|error| {
                        A::Error::custom(format_args!("tensor {name:?}: {error}"))
                    })?;
                    header.tensors.push((name, info));
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// The entries of a JSON object, whose names must be unique.
struct Pairs<V>(Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
            type Value = Pairs<V>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
                let (mut pairs, mut names) = (Vec::new(), HashSet::new());
                while let Some(name) = next_name(&mut map, &mut names)? {
                    pairs.push((name, map.next_value()?));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor(PhantomData))
    }
}

/// Reads the name of an object's next entry and refuses a repeated one; the crate would take the
/// last.
fn next_name<'de, A: MapAccess<'de>>(
    map: &mut A,
    names: &mut HashSet<String>,
) -> Result<Option<String>, A::Error> {
    let name: Option<String> = map.next_key()?;
    match &name {
        Some(name) if !names.insert(name.clone()) => {
            Err(A::Error::custom(format_args!("it names {name:?} twice")))
        }
        Some(_) | None => Ok(name),
    }
}

/// GT's dtype for a file's dtype, if there is one.
fn dtype_of(dtype: FileDtype) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|&each| file_dtype(each) == Some(dtype))
}

/// The file's dtype for one of GT's; there is none for complex128.
fn file_dtype(dtype: Dtype) -> Option<FileDtype> {
    Some(match dtype {
        Dtype::C64 => FileDtype::C64,
        Dtype::F64 => FileDtype::F64,
        Dtype::F32 => FileDtype::F32,
        Dtype::F16 => FileDtype::F16,
        Dtype::Bf16 => FileDtype::BF16,
        Dtype::I64 => FileDtype::I64,
        Dtype::I32 => FileDtype::I32,
        Dtype::I16 => FileDtype::I16,
        Dtype::I8 => FileDtype::I8,
        Dtype::U8 => FileDtype::U8,
        Dtype::Bool => FileDtype::BOOL,
        Dtype::C128 => return None,
    })
}
