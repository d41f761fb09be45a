//! A spare that is the same, and is reached by another device.

use wattle_engine::MemberKey;
use wattle_rt::Device;

use super::{MdMetadata, SuperblockPlace};
use crate::md::bitmap;

impl MdMetadata {
    /// A spare is reached over another connection now.
    pub async fn replace_device(&self, key: MemberKey, device: Device) {
        let _turn = self.changing.acquire(1).await;
        let superblock = self.state.borrow().superblock(key).cloned();
        if let (Some(bitmap), Some(superblock)) = (self.bitmap(), superblock)
            && let Some(copy) = bitmap::BitmapPlace::of(&device, &superblock)
        {
            // Without room it does no harm until it is given a seat, and then it fails.
            let _ = bitmap.add(key, copy);
        }
        self.bad_logs.borrow_mut().remove(&key);
        self.stamps.forget(key);
        if let Some(place) = self.places.borrow_mut().get_mut(key.0 as usize) {
            *place = Some(SuperblockPlace { device });
        }
    }
}
