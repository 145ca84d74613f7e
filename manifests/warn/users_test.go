package warn_test

import (
	"strings"
	"testing"
)

// TestIDsThatAUserNamespaceLacksAreWarnedOf: their containers would be retried for ever.
func TestIDsThatAUserNamespaceLacksAreWarnedOf(t *testing.T) {
	t.Parallel()
	const apart = ", hostUsers: false"
	for name, tt := range map[string]struct {
		container, spec string
		// fields are those that are warned of.
		fields string
	}{
		"the last id":           {"", apart + ", securityContext: {runAsUser: 65535, runAsGroup: 65535, fsGroup: 65535}", ""},
		"ids of the pod":        {"", apart + ", securityContext: {runAsUser: 65536, runAsGroup: 65536, fsGroup: 2000000, supplementalGroups: [1, 65536]}", "runAsUser runAsGroup fsGroup supplementalGroups[1]"},
		"those of a container":  {", securityContext: {runAsUser: 100000, runAsGroup: 100000}", apart, "runAsUser runAsGroup"},
		"users of the machine":  {"", ", securityContext: {runAsUser: 100000}", ""},
		"the machine's, so far": {"", ", hostUsers: true, securityContext: {runAsUser: 100000}", ""},
	} {
		var fields []string
		for line := range strings.Lines(of(t, false, aPod("a", tt.container, tt.spec))) {
			before, _, _ := strings.Cut(line, ": 100000 is never")
			before, _, _ = strings.Cut(before, ": 65536 is never")
			before, _, _ = strings.Cut(before, ": 2000000 is never")
			fields = append(fields, before[strings.LastIndex(before, ".")+1:])
		}
		if got := strings.Join(fields, " "); got != tt.fields {
			t.Errorf("%s: %q, want %q", name, got, tt.fields)
		}
	}
}
