/* Returns an attribute of a process; exits if it is unknown. */

#include <stdio.h>
#include <stdlib.h>

#include <pmix.h>

static pmix_value_t *get(const pmix_proc_t *proc, const char *key)
{
    pmix_value_t *value = NULL;
    pmix_status_t status = PMIx_Get(proc, key, NULL, 0, &value);

    if (PMIX_SUCCESS != status) {
        printf("rank %u: %s: %s\n", proc->rank, key, PMIx_Error_string(status));
        exit(1);
    }
    return value;
}
