//! The error of a crate, written once.
//!
//! Crates here have one error each: opaque, so that what it holds can change; with a kind for programs and a message for
//! people. Only the kinds differ from crate to crate, so only they are written there.

/// Defines a crate's `Error` around its kinds: opaque, with a message, and with a cause where there is one. The first line
/// is what it is an error of, the second says who may make one.
///
/// The kind must be `Copy`, `Eq` and `Debug`. Errors are equal that are of one kind and say the same; their causes do not
/// count, as causes of most types cannot be compared.
///
/// ```
/// /// What kind of failure an [`Error`] reports.
/// #[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// #[non_exhaustive]
/// pub enum ErrorKind {
///     /// There is nothing of that name.
///     Unknown,
/// }
///
/// plimsoll_memory::opaque_error! {
///     /// Why something cannot be had.
///     pub struct Error(ErrorKind);
///     pub(crate) new;
/// }
///
/// let cause = "0x".parse::<u8>().unwrap_err();
/// let error = Error::new(ErrorKind::Unknown, "there is no `0x`").caused_by(cause.clone());
/// assert_eq!(error.kind(), ErrorKind::Unknown);
/// assert_eq!(error.to_string(), "there is no `0x`");
/// let source = std::error::Error::source(&error).expect("its cause");
/// assert_eq!(source.downcast_ref(), Some(&cause));
/// assert_eq!(error, Error::new(ErrorKind::Unknown, "there is no `0x`"));
/// ```
#[macro_export]
macro_rules! opaque_error {
    ($(#[$about:meta])* pub struct $error:ident($kind:ty); $new:vis new;) => {
        $(#[$about])*
        #[derive(Debug, Clone)]
        pub struct $error {
            kind: $kind,
            message: ::std::string::String,
            source: ::std::option::Option<
                ::std::sync::Arc<dyn ::std::error::Error + ::std::marker::Send + ::std::marker::Sync>,
            >,
        }

        impl $error {
            /// An error of that kind.
            $new fn new(kind: $kind, message: impl ::std::convert::Into<::std::string::String>) -> Self {
                Self { kind, message: message.into(), source: ::std::option::Option::None }
            }

            /// Adds the cause.
            #[must_use]
            #[allow(dead_code, reason = "not every crate has errors that another caused")]
            $new fn caused_by(
                mut self,
                source: impl ::std::error::Error + ::std::marker::Send + ::std::marker::Sync + 'static,
            ) -> Self {
                self.source = ::std::option::Option::Some(::std::sync::Arc::new(source));
                self
            }

            /// What kind of failure this is.
            #[must_use]
            pub fn kind(&self) -> $kind {
                self.kind
            }
        }

        impl ::std::cmp::PartialEq for $error {
            fn eq(&self, other: &Self) -> bool {
                self.kind == other.kind && self.message == other.message
            }
        }

        impl ::std::cmp::Eq for $error {}

        impl ::std::fmt::Display for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.message)
            }
        }

        impl ::std::error::Error for $error {
            fn source(&self) -> ::std::option::Option<&(dyn ::std::error::Error + 'static)> {
                self.source.as_ref().map(|source| &**source as _)
            }
        }
    };
}
