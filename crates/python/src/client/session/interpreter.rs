//! Functions of the interpreter that are outside the stable ABI: looked up at run time, each with a fallback where it is used.

use std::ffi::CStr;

/// The address of a function, if this interpreter has it.
pub(crate) fn symbol(name: &CStr) -> Option<usize> {
    // SAFETY: dlsym with the default handle only looks a name up.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then(|| address.addr())
}

/// [`symbol`] of a function with a fallback; `None` if `GT_STABLE_ABI_ONLY` selects the fallbacks.
pub(crate) fn private_symbol(name: &CStr) -> Option<usize> {
    // Read before Python can read it: it accepts the words of gt/config/variables.py, which reports
    // other words.
    let stable_only = std::env::var("GT_STABLE_ABI_ONLY").is_ok_and(|word| {
        ["1", "true", "yes", "on"].contains(&word.trim().to_lowercase().as_str())
    });
    if stable_only { None } else { symbol(name) }
}
