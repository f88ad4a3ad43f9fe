/* Requests resources with a text attribute of as many bytes as each argument says. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pmix.h>

int main(int argc, char **argv)
{
    pmix_proc_t me;
    pmix_info_t info, *results;
    size_t count;

    if (PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    for (int n = 1; n < argc; n++) {
        size_t size = strtoul(argv[n], NULL, 10);
        char *text = calloc(size + 1, 1);

        if (NULL == text) {
            return 1;
        }
        memset(text, 'x', size);
        PMIX_INFO_LOAD(&info, PMIX_ALLOC_NODE_LIST, text, PMIX_STRING);
        printf("%s: %d\n", argv[n],
               PMIx_Allocation_request(PMIX_ALLOC_NEW, &info, 1, &results, &count));
        PMIX_INFO_DESTRUCT(&info);
        free(text);
    }
    return PMIX_SUCCESS == PMIx_Finalize(NULL, 0) ? 0 : 1;
}
