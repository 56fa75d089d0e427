#include "model/optimizer.h"

#include <math.h>

int dlrm_optimizer_states(const dlrm_optimizer_config *o)
{
    switch (o->name) {
    case DLRM_SGD: return o->momentum != 0;
    case DLRM_ADAGRAD:
    case DLRM_ROWWISE_ADAGRAD: return 1;
    case DLRM_ADAM: return 2;
    }
    return 0;
}

bool dlrm_optimizer_rowwise(const dlrm_optimizer_config *o)
{
    return o->name == DLRM_ROWWISE_ADAGRAD;
}

float dlrm_optimizer_initial(const dlrm_optimizer_config *o)
{
    return o->name == DLRM_ADAGRAD || o->name == DLRM_ROWWISE_ADAGRAD ? (float)o->initial_accumulator : 0;
}

dlrm_rule dlrm_optimizer_rule(const dlrm_optimizer_config *o, double rate, int64_t t, bool sparse)
{
    dlrm_rule r = {.name = o->name, .lr = (float)rate, .momentum = (float)o->momentum, .epsilon = (float)o->epsilon,
                   .beta1 = (float)o->beta1, .beta2 = (float)o->beta2};
    if (o->name == DLRM_ADAM) {
        double c1 = 1 - pow(o->beta1, (double)t), c2 = 1 - pow(o->beta2, (double)t);
        r.adam_rate = (float)(sparse ? rate * sqrt(c2) / c1 : rate / c1);
        r.adam_root = (float)(sparse ? 1 : 1 / sqrt(c2));
    }
    return r;
}
