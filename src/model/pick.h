/* Of a batch's bags the ids that are rows of a slice of a table that is cut by rows. */
#pragma once
#include "data/dataset.h"

typedef struct dlrm_pick {
    uint32_t first_row, row_step; /* the slice's row r is the table's first_row + r * row_step; row_step >= 2 */
    int hotness;                  /* of the input */
    int vectors;                  /* 1: bags stay whole; hotness: each id is in a bag of its own, and short ones are filled up */
} dlrm_pick;

/* ids: the slice's rows, in the order of the batch, with room for from->count; offsets [samples * vectors + 1]. Returns how many there are.
 * By the threads of OpenMP, and the same with any number of them. */
int64_t dlrm_pick_rows(const dlrm_pick *p, const dlrm_ids *from, uint32_t *ids, int64_t *offsets);
