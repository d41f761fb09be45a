//! Clients that do not behave.

use std::time::Duration;

use wattle_export::nbd::limits::REQUEST_BYTES_MAX;
use wattle_export::nbd::protocol::{self as proto, NbdRequest, commands};
use wattle_rt::{Buf, BufMut, Core, Either, IoError, Rng, SimEndpoint, Stream, race};

/// How a client does not behave.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// It asks for so many reads of so many bytes, and takes no answer.
    Deaf {
        /// Requests.
        requests: u64,
        /// Bytes of each.
        length: u32,
    },
    /// The same, but it takes some bytes now and then.
    Slow {
        /// Requests.
        requests: u64,
        /// Bytes of each.
        length: u32,
        /// Bytes that it takes at a time.
        takes: usize,
    },
    /// It connects and says nothing.
    Silent,
    /// It begins a write of so many bytes and stops in the middle.
    Halting {
        /// Bytes of the write.
        length: u32,
    },
    /// It asks and leaves after a while, without a word.
    Leaving {
        /// Requests.
        requests: u64,
        /// Bytes of each.
        length: u32,
    },
}

impl Manner {
    pub(super) fn draw(rng: &mut Rng, request_max: u64) -> Manner {
        let length = (4096 * (1 + rng.below(request_max / 4096))) as u32;
        let requests = 1 + rng.below(40);
        match rng.below(8) {
            0..=2 => Manner::Deaf { requests, length },
            3 => Manner::Slow { requests, length, takes: 1 + rng.below(512) as usize },
            4 => Manner::Silent,
            5 => Manner::Halting { length },
            _ => Manner::Leaving { requests, length },
        }
    }

    /// What must not happen to it, if it does. A client that says nothing waits no longer than
    /// `patience`.
    pub(super) async fn live(
        self,
        core: &Core,
        endpoint: &SimEndpoint,
        mut rng: Rng,
        patience: Duration,
    ) -> Option<String> {
        let stream = endpoint.connect().ok()?;
        if let Manner::Silent = self {
            let (core, stream) = (core.clone(), stream.clone());
            return match race(read_to_the_end(&core, &stream), core.sleep(patience)).await {
                Either::First(()) => None,
                Either::Second(()) => Some(format!("it said nothing for {patience:?}, and is connected")),
            };
        }
        if shake_hands(core, &stream).await.is_err() {
            return None;
        }
        // Whatever becomes of it, the server has to do with it.
        let _ = self.misbehave(core, &stream, &mut rng).await;
        None
    }

    async fn misbehave(self, core: &Core, stream: &Stream, rng: &mut Rng) -> Result<(), IoError> {
        match self {
            Manner::Deaf { requests, length } => {
                ask(core, stream, rng, requests, length).await?;
                // It stays until the server hangs up on it, and longer.
                std::future::pending::<()>().await;
            }
            Manner::Slow { requests, length, takes } => {
                let asking = {
                    let (core, stream, mut rng) = (core.clone(), stream.clone(), rng.fork());
                    async move { ask(&core, &stream, &mut rng, requests, length).await }
                };
                drop(core.spawn(asking));
                while core.recv(stream, BufMut::alloc(takes)).await.0? > 0 {
                    core.sleep(Duration::from_millis(1 + rng.below(20))).await;
                }
            }
            Manner::Halting { length } => {
                let length = length.min(REQUEST_BYTES_MAX);
                send_request(core, stream, commands::WRITE, 0, length).await?;
                core.send(stream, vec![Buf::zeros(length as usize / 2)]).await?;
                std::future::pending::<()>().await;
            }
            Manner::Leaving { requests, length } => {
                let leaves = core.sleep(Duration::from_micros(rng.below(20_000)));
                race(ask(core, stream, rng, requests, length), leaves).await;
                if rng.coin() {
                    stream.shutdown();
                }
            }
            Manner::Silent => {}
        }
        Ok(())
    }
}

async fn read_to_the_end(core: &Core, stream: &Stream) {
    while core.recv(stream, BufMut::alloc(64)).await.0.is_ok_and(|count| count > 0) {}
}

/// Takes the server's greeting, chooses the default export, and takes the answer.
async fn shake_hands(core: &Core, stream: &Stream) -> Result<(), IoError> {
    take(core, stream, proto::GREETING_BYTES).await?;
    core.send(stream, vec![Buf::copy_of(&proto::client_flags()), Buf::copy_of(&proto::go(""))]).await?;
    loop {
        let header = take(core, stream, proto::OPTION_REPLY_BYTES).await?;
        // The kind of the reply and the length of its data end its header.
        let field = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        take(core, stream, field(16) as usize).await?;
        if field(12) != proto::replies::INFO {
            return Ok(());
        }
    }
}

async fn take(core: &Core, stream: &Stream, length: usize) -> Result<Vec<u8>, IoError> {
    let mut all = Vec::new();
    while all.len() < length {
        let (result, buf) = core.recv(stream, BufMut::alloc(length - all.len())).await;
        match result? {
            0 => return Err(IoError::END_OF_DEVICE),
            count => all.extend_from_slice(&buf[..count]),
        }
    }
    Ok(all)
}

/// Asks for reads at places all over the volume.
async fn ask(core: &Core, stream: &Stream, rng: &mut Rng, requests: u64, length: u32) -> Result<(), IoError> {
    let blocks = (super::MEMBER_SECTORS * 512 - u64::from(length)) / 4096;
    for _ in 0..requests {
        send_request(core, stream, commands::READ, rng.below(blocks) * 4096, length).await?;
    }
    Ok(())
}

async fn send_request(
    core: &Core,
    stream: &Stream,
    kind: u16,
    offset_bytes: u64,
    length_bytes: u32,
) -> Result<(), IoError> {
    let request = NbdRequest { flags: 0, kind, cookie: 0, offset_bytes, length_bytes: length_bytes.into() };
    core.send(stream, vec![Buf::copy_of(&request.encode())]).await
}
