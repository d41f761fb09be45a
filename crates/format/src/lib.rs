//! On-disk formats as values: md superblocks, bitmap, bad-block log, PPL, journal; losslessly there and back.
