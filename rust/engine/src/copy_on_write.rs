//! Copy-on-write values: a clone of a shared value costs nothing until one of the two changes.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A value that is owned, and changed in place without a reference count; or shared.
pub(crate) enum CopyOnWrite<T> {
    Owned(T),
    Shared(Arc<T>),
}

impl<T: Clone> Clone for CopyOnWrite<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Owned(value) => Self::Owned(value.clone()),
            Self::Shared(value) => Self::Shared(Arc::clone(value)),
        }
    }
}

impl<T> Deref for CopyOnWrite<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Owned(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for CopyOnWrite<T> {
    /// Formats the value, shared or not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Clone + Default> CopyOnWrite<T> {
    #[inline]
    pub fn is_owned(&self) -> bool {
        matches!(self, Self::Owned(_))
    }

    /// Makes clones share the value from now on.
    pub fn share(&mut self) {
        if let Self::Owned(value) = self {
            *self = Self::Shared(Arc::new(std::mem::take(value)));
        }
    }

    /// The value, to be changed; copied first if a clone shares it.
    #[inline]
    pub fn to_mut(&mut self) -> &mut T {
        if !self.is_owned() {
            self.unshare();
        }
        match self {
            Self::Owned(value) => value,
            Self::Shared(value) => Arc::make_mut(value),
        }
    }

    /// Makes the value owned; copied if a clone shares it.
    #[cold]
    #[inline(never)]
    pub fn unshare(&mut self) {
        if let Self::Shared(value) = self {
            *self = Self::Owned(Arc::unwrap_or_clone(std::mem::take(value)));
        }
    }
}
