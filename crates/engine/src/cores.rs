//! The one way to everything that exists once per core.
//!
//! Cores are reached one after the other, so two of them disagree for a while. A change whose
//! halves a client could tell apart is made in phases, each of them on every core before the next
//! begins: what can fail first, then what lets nothing new happen, then what lets it happen again.
//! [`crate::volume::MappedHandle::remap`] and `Home::exclusively` are examples.

use std::convert::Infallible;
use std::rc::Rc;

use wattle_rt::{Core, CoreIx};

/// Runs `f` on every core and returns the answers, by core.
pub(crate) async fn each<T, F, Fut>(core: &Core, f: F) -> Vec<T>
where
    T: Send + 'static,
    F: Fn(Core) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let always = move |core| {
        let answer = f(core);
        async move { Ok::<T, Infallible>(answer.await) }
    };
    let Ok(answers) = each_until(core, always).await;
    answers
}

/// Like [`each`], up to the first core on which `f` fails.
pub(crate) async fn each_until<T, E, F, Fut>(core: &Core, f: F) -> Result<Vec<T>, E>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Fn(Core) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<T, E>> + 'static,
{
    let mut answers = Vec::with_capacity(core.cores());
    for index in (0..core.cores()).map(CoreIx) {
        answers.push(core.call(index, f.clone()).await?);
    }
    Ok(answers)
}

/// Runs `f` with what is under `key` in each core's registry; cores that have nothing there are
/// passed over.
pub(crate) async fn on_every_core<P, F, Fut>(core: &Core, key: u64, f: F)
where
    P: 'static,
    F: Fn(Rc<P>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    each(core, move |core| {
        let work = core.local::<P>(key).map(&f);
        async move {
            if let Some(work) = work {
                work.await;
            }
        }
    })
    .await;
}
