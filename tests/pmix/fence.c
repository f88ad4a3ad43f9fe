/* Ends some ranks while the others continue to fence.
 *
 *     fence HOW FIRST COUNT
 *
 * The ranks from FIRST on end: `killed` or `finalized` after a fence of all, `exits` before they connect, `waits`
 * in a fence until it is killed. The others fence COUNT times; of those, rank 0 awaits a line, or the end of
 * its input, before the first.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pmix.h>

int main(int argc, char **argv)
{
    pmix_proc_t me, all;
    const char *how = argc == 4 ? argv[1] : "", *rank = getenv("PMIX_RANK");
    bool ends;

    if (4 != argc || NULL == rank) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    ends = atoi(rank) >= atoi(argv[2]);
    if (ends && 0 == strcmp(how, "exits")) {
        return 0;
    }
    if (PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    if (0 != strcmp(how, "exits") && PMIX_SUCCESS != PMIx_Fence(&all, 1, NULL, 0)) {
        return 1;
    }
    if (ends && 0 == strcmp(how, "killed")) {
        raise(SIGKILL);
    }
    if (ends && 0 == strcmp(how, "waits")) {
        printf("waits\n");
        PMIx_Fence(&all, 1, NULL, 0);
        return 1;
    }
    if (!ends) {
        if (0 == me.rank) {
            getchar();
        }
        for (int n = 0; n < atoi(argv[3]); n++) {
            printf("fence: %d\n", PMIx_Fence(&all, 1, NULL, 0));
        }
    }
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 1;
}
