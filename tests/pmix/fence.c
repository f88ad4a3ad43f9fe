/* The last rank dies after a fence of all; the others go on to fence. */

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <pmix.h>

int main(void)
{
    pmix_proc_t me, all;
    pmix_value_t *size;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    if (PMIX_SUCCESS != PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &size)
        || PMIX_SUCCESS != PMIx_Fence(&all, 1, NULL, 0)) {
        return 1;
    }
    if (me.rank + 1 == size->data.uint32) {
        raise(SIGKILL);
    }
    /* A line comes when the death is known, or none. */
    if (0 == me.rank) {
        getchar();
    }
    for (int n = 0; n < 3; n++) {
        printf("fence: %d\n", PMIx_Fence(&all, 1, NULL, 0));
    }
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 1;
}
