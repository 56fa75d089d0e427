/* For tests of placements: Merlin's synthetic models (configs/synthetic) on H200s, with vectors in bf16 and one state an element. */
#pragma once
#include "config_fixture.h"
#include "model/placement_cost.h"

typedef struct opened {
    dlrm_config cfg;
    dlrm_model_spec spec;
    dlrm_placement_args args;
} opened;

static void open_model(const char *name, opened *o)
{
    char path[400];
    snprintf(path, sizeof path, "%s/configs/synthetic/%s.yaml", SOURCE_ROOT, name);
    assert_taken(dlrm_config_load(path, 0, NULL, &o->cfg));
    assert_taken(dlrm_model_spec_resolve(&o->cfg, NULL, &o->spec));
    o->args = (dlrm_placement_args){.strategy = DLRM_STRATEGY_AUTO, .data_parallel = -1, .row_slice = -1, .column_slice = -1,
                                    .work = {.batch = o->cfg.train.batch_size, .value_bytes = 2, .table_bytes = 4, .states = 1,
                                             .alpha = o->cfg.data.synthetic.alpha}};
    dlrm_placement_rates(true, &o->args.work);
}

static void close_model(opened *o)
{
    dlrm_model_spec_clear(&o->spec);
    dlrm_config_clear(&o->cfg);
}
