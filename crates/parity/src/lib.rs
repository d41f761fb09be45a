//! XOR and P+Q parity: encode, delta update and recovery of any one or two lost blocks.
