//! What the control socket bounds: orders at a time, and what clients that take no answers can hold
//! back. In a simulated world, where time costs none.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_rt::sync::OneshotSender;
use wattle_rt::{
    Buf, BufMut, Core, Either, Listener, SimEndpoint, SimWorld, Stream, WorldConfig, oneshot, race,
};
use wattle_server::protocol::{LINE_BYTES_MAX, Response, ServerRequest, decode, encode};
use wattle_server::socket::listen::ControlServer;

/// Orders that a server has at a time.
const ORDERS_MAX: usize = 256;

/// Nothing waits longer than this for what goes on at once.
const SOON: Duration = Duration::from_millis(500);

fn in_a_world(test: impl AsyncFnOnce(Core, SimEndpoint, Listener)) {
    let mut world = SimWorld::new(WorldConfig { seed: 3, cores: 1, ..WorldConfig::default() });
    let (endpoint, listener) = world.endpoint(4096);
    world.run(async move |core| test(core, endpoint, listener).await).expect_done();
}

fn done(message: &str) -> Response {
    Response::Done { message: message.to_owned(), undo_log: None, member: None }
}

fn check() -> ServerRequest {
    ServerRequest::Check { array: "data".to_owned() }
}

fn stop() -> ServerRequest {
    ServerRequest::Stop { array: "data".to_owned(), server: false }
}

async fn ask(core: &Core, endpoint: &SimEndpoint, request: &ServerRequest) -> Stream {
    let client = endpoint.connect().unwrap();
    core.send(&client, vec![Buf::copy_of(&encode(request))]).await.unwrap();
    client
}

/// The answer, if it comes soon.
async fn answer(core: &Core, client: &Stream) -> Option<Response> {
    let receive = async {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let (received, buf) = core.recv(client, BufMut::alloc(1024)).await;
            let len = received.unwrap();
            assert!(len > 0, "the connection ends before the answer");
            line.extend_from_slice(&buf[..len]);
        }
        decode(&line).unwrap()
    };
    match race(receive, core.sleep(SOON)).await {
        Either::First(response) => Some(response),
        Either::Second(()) => None,
    }
}

#[test]
fn orders_are_bounded_and_hold_back_neither_status_nor_stop() {
    in_a_world(async |core, endpoint, listener| {
        let under_way: Rc<RefCell<Vec<OneshotSender<()>>>> = Rc::default();
        let begun = under_way.clone();
        let server = ControlServer::start(&core, listener, move |request| {
            let (sender, receiver) = oneshot();
            if request == check() {
                begun.borrow_mut().push(sender);
            }
            Box::pin(async move {
                if request == check() {
                    let _ = receiver.await;
                }
                done("done")
            })
        });
        let mut clients = Vec::new();
        for _ in 0..ORDERS_MAX {
            clients.push(ask(&core, &endpoint, &check()).await);
            core.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(under_way.borrow().len(), ORDERS_MAX);
        let refused = ask(&core, &endpoint, &check()).await;
        let refusal = answer(&core, &refused).await.expect("it is refused at once");
        assert!(
            matches!(&refusal, Response::Error(error) if error.what.contains("256 orders")),
            "{refusal:?}"
        );
        let why = ServerRequest::Why { array: "data".to_owned() };
        for request in [ServerRequest::Status, why, stop()] {
            let client = ask(&core, &endpoint, &request).await;
            assert_eq!(answer(&core, &client).await, Some(done("done")), "{request:?}");
        }
        // Those that end make room for others, once the clients that are left have gone too.
        under_way.borrow_mut().clear();
        core.sleep(Duration::from_secs(60)).await;
        let one_more = ask(&core, &endpoint, &check()).await;
        assert_eq!(answer(&core, &one_more).await, None, "it is under way");
        under_way.borrow_mut().clear();
        assert_eq!(answer(&core, &one_more).await, Some(done("done")));
        drop(clients);
        server.drain(&core).await;
    });
}

#[test]
fn the_end_does_not_wait_for_clients_that_take_no_answers() {
    in_a_world(async |core, endpoint, listener| {
        let long = "x".repeat(64 << 10);
        let server = ControlServer::start(&core, listener, move |_| {
            let response = done(&long);
            Box::pin(async move { response })
        });
        let client = ask(&core, &endpoint, &ServerRequest::Status).await;
        core.sleep(SOON).await;
        let begun = core.now();
        server.drain(&core).await;
        let took = core.now() - begun;
        assert!(took >= Duration::from_secs(1), "it has some time to take the answer: {took:?}");
        assert!(took < Duration::from_secs(4), "{took:?}");
        drop(client);
    });
}

#[test]
fn clients_that_keep_the_server_waiting_make_way() {
    in_a_world(async |core, endpoint, listener| {
        let _server = ControlServer::start(&core, listener, |_| Box::pin(async { done("done") }));
        let silent: Vec<_> = (0..100).map(|_| endpoint.connect().unwrap()).collect();
        let asking = ask(&core, &endpoint, &ServerRequest::Status).await;
        assert_eq!(answer(&core, &asking).await, Some(done("done")));
        drop(silent);
    });
}

#[test]
fn an_answer_that_no_client_would_take_is_told_as_that() {
    in_a_world(async |core, endpoint, listener| {
        let long = "x".repeat(LINE_BYTES_MAX);
        let _server = ControlServer::start(&core, listener, move |_| {
            let answer = done(&long);
            Box::pin(async move { answer })
        });
        let client = ask(&core, &endpoint, &stop()).await;
        let said = answer(&core, &client).await;
        assert!(
            matches!(&said, Some(Response::Error(error)) if error.what.contains("bytes long")),
            "{said:?}"
        );
    });
}
