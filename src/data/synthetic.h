/* Made-up data: power-law ids, dense values, and labels that a hidden model of the inputs draws, so that there is
 * something to learn and its bound is known. Every number is a function of (seed, split, feature, row), so a row is the
 * same for any number of ranks and any batch size. */
#pragma once
#include "data/dataset.h"

/* The hidden model's probability of label 1 for rows [first, first+n): scored against the labels it gives the best AUC
 * that any model can reach. 0.5 where labels are coin flips. */
dlrm_status dlrm_synthetic_probabilities(const dlrm_dataset *d, int split, int64_t first, int64_t n, double *out)
    DLRM_MUST_USE;
