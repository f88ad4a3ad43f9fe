//! Something that is cheap to clone once it has been shared: the clone has it in common with the
//! original until one of the two changes it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Its own, to be changed in place without a look at who else has it; or shared.
pub(crate) enum Part<T> {
    Own(T),
    Shared(Arc<T>),
}

impl<T: Clone> Clone for Part<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Own(it) => Self::Own(it.clone()),
            Self::Shared(it) => Self::Shared(Arc::clone(it)),
        }
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Own(it) => it,
            Self::Shared(it) => it,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Part<T> {
    /// As what it is, shared or not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Clone + Default> Part<T> {
    #[inline]
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// From now on, clones share it.
    pub fn share(&mut self) {
        if let Self::Own(it) = self {
            *self = Self::Shared(Arc::new(std::mem::take(it)));
        }
    }

    /// It, to be changed: copied if a clone has it, too.
    #[inline]
    pub fn own(&mut self) -> &mut T {
        if !self.is_own() {
            self.part();
        }
        match self {
            Self::Own(it) => it,
            Self::Shared(it) => Arc::make_mut(it),
        }
    }

    #[cold]
    #[inline(never)]
    pub fn part(&mut self) {
        if let Self::Shared(it) = self {
            *self = Self::Own(Arc::unwrap_or_clone(std::mem::take(it)));
        }
    }
}
