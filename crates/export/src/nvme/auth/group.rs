//! The Diffie-Hellman groups of RFC 7919. Pure.
//!
//! All five primes come from one formula and the digits of e, which are here once. A private key
//! is short, as section 5.2 there allows: what is as hard to find as the group is to break.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::{Zeroize, Zeroizing};

/// The longest private key.
pub const EXPONENT_BYTES_MAX: usize = 50;

/// A group, by its number in NVMe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FfdheGroup {
    /// ffdhe2048, and so on.
    Ffdhe2048 = 1,
    Ffdhe3072 = 2,
    Ffdhe4096 = 3,
    Ffdhe6144 = 4,
    Ffdhe8192 = 5,
}

impl FfdheGroup {
    /// The group first that costs least of those that are as strong as AES-128, about; then those
    /// that are stronger; the one that is weaker comes last.
    pub const PREFERENCE: [Self; 5] =
        [Self::Ffdhe3072, Self::Ffdhe4096, Self::Ffdhe6144, Self::Ffdhe8192, Self::Ffdhe2048];

    /// The length of the prime, and of every value of the group.
    pub fn bytes(self) -> usize {
        match self {
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    /// The length of a private key: at least the bits that appendix A of the RFC says.
    pub fn exponent_bytes(self) -> usize {
        match self {
            Self::Ffdhe2048 => 29,
            Self::Ffdhe3072 => 35,
            Self::Ffdhe4096 => 41,
            Self::Ffdhe6144 => 47,
            Self::Ffdhe8192 => EXPONENT_BYTES_MAX,
        }
    }

    /// The X of the formula: the smallest that makes p and (p - 1) / 2 primes.
    fn step(self) -> u64 {
        match self {
            Self::Ffdhe2048 => 560_316,
            Self::Ffdhe3072 => 2_625_351,
            Self::Ffdhe4096 => 5_736_041,
            Self::Ffdhe6144 => 15_705_020,
            Self::Ffdhe8192 => 10_965_728,
        }
    }

    /// p = 2^b - 2^(b-64) + (⌊2^(b-130) e⌋ + X) 2^64 - 1, of b bits, with the most significant
    /// byte first: 64 ones, the digits of e with X - 1 added, and 64 ones, which is what taking 1
    /// away leaves.
    pub(super) fn prime(self) -> Vec<u8> {
        let mut words = E_DIGITS[..self.bytes() / 8 - 2].to_vec();
        let mut carry = self.step() - 1;
        for word in words.iter_mut().rev() {
            let (sum, overflows) = word.overflowing_add(carry);
            (*word, carry) = (sum, overflows.into());
        }
        let outer = [u64::MAX];
        [&outer[..], &words, &outer].concat().iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// Whether a value that a peer sent, the most significant byte first, is one that a key may be
    /// made with: 1 < y < p - 1. The others give keys that are known to all.
    pub fn accepts(self, value: &[u8]) -> bool {
        let mut last = self.prime();
        // The prime is odd.
        last[self.bytes() - 1] -= 1;
        let mut one = vec![0; self.bytes()];
        one[self.bytes() - 1] = 1;
        self.padded(value).is_some_and(|value| one < value && value < last)
    }

    /// A value in the group's length. Some peers send it without the zeros at its beginning.
    fn padded(self, value: &[u8]) -> Option<Vec<u8>> {
        let zeros = self.bytes().checked_sub(value.len())?;
        let mut padded = vec![0; zeros];
        padded.extend(value);
        Some(padded)
    }
}

/// A power that is to be computed: it takes milliseconds, and no core has them.
pub struct Exponentiation {
    pub group: FfdheGroup,
    /// A value that the group accepts; the generator, if there is none.
    pub base: Option<Vec<u8>>,
    pub exponent: Zeroizing<Vec<u8>>,
}

impl Exponentiation {
    /// The power modulo the prime, in the group's length, in a time that depends on the group
    /// alone.
    pub fn compute(&self) -> Zeroizing<Vec<u8>> {
        const GENERATOR: &[u8] = &[2];
        let bits = self.group.bytes() as u32 * 8;
        let exponent_bits = self.exponent.len() as u32 * 8;
        let number = |bytes: &[u8]| BoxedUint::from_be_slice_truncated(bytes, bits);
        let prime = Odd::new(number(&self.group.prime())).into_option().expect("the prime is odd");
        let params = BoxedMontyParams::new_vartime(prime);
        let base = BoxedMontyForm::new(number(self.base.as_deref().unwrap_or(GENERATOR)), &params);
        let mut exponent = number(&self.exponent);
        let mut power = base.pow_bounded_exp(&exponent, exponent_bits);
        exponent.zeroize();
        let mut value = power.retrieve();
        power.zeroize();
        let bytes = Zeroizing::new(value.to_be_bytes().into_vec());
        value.zeroize();
        bytes
    }
}

/// ⌊2^8062 e⌋, the most significant digits first.
#[rustfmt::skip]
const E_DIGITS: [u64; 126] = [
    0xadf8_5458_a2bb_4a9a, 0xafdc_5620_273d_3cf1, 0xd8b9_c583_ce2d_3695, 0xa9e1_3641_1464_33fb,
    0xcc93_9dce_249b_3ef9, 0x7d2f_e363_630c_75d8, 0xf681_b202_aec4_617a, 0xd3df_1ed5_d5fd_6561,
    0x2433_f51f_5f06_6ed0, 0x8563_6555_3ded_1af3, 0xb557_135e_7f57_c935, 0x984f_0c70_e0e6_8b77,
    0xe2a6_89da_f3ef_e872, 0x1df1_58a1_36ad_e735, 0x30ac_ca4f_483a_797a, 0xbc0a_b182_b324_fb61,
    0xd108_a94b_b2c8_e3fb, 0xb96a_dab7_60d7_f468, 0x1d4f_42a3_de39_4df4, 0xae56_ede7_6372_bb19,
    0x0b07_a7c8_ee0a_6d70, 0x9e02_fce1_cdf7_e2ec, 0xc034_04cd_2834_2f61, 0x9172_fe9c_e985_83ff,
    0x8e4f_1232_eef2_8183, 0xc3fe_3b1b_4c6f_ad73, 0x3bb5_fcbc_2ec2_2005, 0xc58e_f183_7d16_83b2,
    0xc6f3_4a26_c1b2_effa, 0x886b_4238_611f_cfdc, 0xde35_5b3b_6519_035b, 0xbc34_f4de_f99c_0238,
    0x61b4_6fc9_d6e6_c907, 0x7ad9_1d26_91f7_f7ee, 0x598c_b0fa_c186_d91c, 0xaefe_1309_8513_9270,
    0xb413_0c93_bc43_7944, 0xf4fd_4452_e2d7_4dd3, 0x64f2_e21e_71f5_4bff, 0x5cae_82ab_9c9d_f69e,
    0xe86d_2bc5_2236_3a0d, 0xabc5_2197_9b0d_eada, 0x1dbf_9a42_d5c4_484e, 0x0abc_d06b_fa53_ddef,
    0x3c1b_20ee_3fd5_9d7c, 0x25e4_1d2b_669e_1ef1, 0x6e6f_52c3_164d_f4fb, 0x7930_e9e4_e588_57b6,
    0xac7d_5f42_d69f_6d18, 0x7763_cf1d_5503_4004, 0x87f5_5ba5_7e31_cc7a, 0x7135_c886_efb4_318a,
    0xed6a_1e01_2d9e_6832, 0xa907_600a_9181_30c4, 0x6dc7_78f9_71ad_0038, 0x0929_99a3_33cb_8b7a,
    0x1a1d_b93d_7140_003c, 0x2a4e_cea9_f98d_0acc, 0x0a82_91cd_cec9_7dcf, 0x8ec9_b55a_7f88_a46b,
    0x4db5_a851_f441_82e1, 0xc68a_007e_5e0d_d902, 0x0bfd_64b6_4503_6c7a, 0x4e67_7d2c_3853_2a3a,
    0x23ba_4442_caf5_3ea6, 0x3bb4_5432_9b76_24c8, 0x917b_dd64_b1c0_fd4c, 0xb38e_8c33_4c70_1c3a,
    0xcdad_0657_fccf_ec71, 0x9b1f_5c3e_4e46_041f, 0x3881_47fb_4cfd_b477, 0xa524_71f7_a9a9_6910,
    0xb855_322e_db63_40d8, 0xa00e_f092_3505_11e3, 0x0abe_c1ff_f9e3_a26e, 0x7fb2_9f8c_1830_23c3,
    0x587e_38da_0077_d9b4, 0x763e_4e4b_94b2_bbc1, 0x94c6_651e_77ca_f992, 0xeeaa_c023_2a28_1bf6,
    0xb3a7_39c1_2261_1682, 0x0ae8_db58_47a6_7cbe, 0xf9c9_091b_462d_538c, 0xd72b_0374_6ae7_7f5e,
    0x6229_2c31_1562_a846, 0x505d_c82d_b854_338a, 0xe49f_5235_c95b_9117, 0x8ccf_2dd5_cace_f403,
    0xec9d_1810_c627_2b04, 0x5b3b_71f9_dc6b_80d6, 0x3fdd_4a8e_9adb_1e69, 0x62a6_9526_d431_61c1,
    0xa41d_570d_7938_dad4, 0xa40e_329c_cff4_6aaa, 0x36ad_004c_f600_c838, 0x1e42_5a31_d951_ae64,
    0xfdb2_3fce_c950_9d43, 0x687f_eb69_edd1_cc5e, 0x0b8c_c3bd_f64b_10ef, 0x86b6_3142_a3ab_8829,
    0x555b_2f74_7c93_2665, 0xcb2c_0f1c_c01b_d702, 0x2938_8839_d2af_05e4, 0x5450_4ac7_8b75_8282,
    0x2846_c0ba_35c3_5f5c, 0x5916_0cc0_46fd_8251, 0x541f_c68c_9c86_b022, 0xbb70_9987_6a46_0e74,
    0x51a8_a931_0970_3fee, 0x1c21_7e6c_3826_e52c, 0x51aa_691e_0e42_3cfc, 0x99e9_e316_50c1_217b,
    0x6248_16cd_ad9a_95f9, 0xd5b8_0194_88d9_c0a0, 0xa1fe_3075_a577_e231, 0x83f8_1d4a_3f2f_a457,
    0x1efc_8ce0_ba8a_4fe8, 0xb685_5dfe_72b0_a66e, 0xded2_fbab_fbe5_8a30, 0xfafa_be1c_5d71_a87e,
    0x2f74_1ef8_c1fe_86fe, 0xa6bb_fde5_3067_7f0d, 0x97d1_1d49_f7a8_443d, 0x0822_e506_a9f4_614e,
    0x011e_2a94_838f_f88c, 0xd68c_8bb7_c51e_ef6d,
];
