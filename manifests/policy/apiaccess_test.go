package policy

import "testing"

func TestPodsThatMayNotBePrivilegedDoNotUseTheAPI(t *testing.T) {
	t.Parallel()
	for level, refused := range map[string]bool{"": false, "privileged": false, "baseline": true, "restricted": true} {
		if found := (Policy{PodSecurity: level}).APIAccess("a"); (len(found) > 0) != refused {
			t.Errorf("%q: %v", level, found)
		}
	}
}
