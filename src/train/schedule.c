/* With n the step, W = warmup_steps, d = decay_start_step, k = decay_steps, p = decay_power:
 *   n < W:          base n/W
 *   W <= n < d:     base (W-1)/W: the last warm-up rate is held, not the full one (as facebook's dlrm does)
 *   d <= n < d+k:   max(min, base ((d+k-n)/k)^p)
 *   d+k <= n:       the rate of n = d+k-1
 * Without decay (k = 0) the full base rate follows the warm-up. */
#include "train/schedule.h"

#include <math.h>

double dlrm_schedule_rate(const dlrm_schedule_config *s, double base, int64_t step)
{
    double warmup = (double)s->warmup_steps;
    if (step < s->warmup_steps) return base * (double)step / warmup;
    if (s->decay_steps == 0) return base;
    if (step < s->decay_start_step) return s->warmup_steps > 1 ? base * (warmup - 1) / warmup : base;

    int64_t into = step - s->decay_start_step;
    if (into > s->decay_steps - 1) into = s->decay_steps - 1;
    double left = (double)(s->decay_steps - into) / (double)s->decay_steps;
    return fmax(s->min_learning_rate, base * pow(left, s->decay_power));
}
