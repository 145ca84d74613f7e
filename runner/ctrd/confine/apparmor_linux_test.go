package confine

import (
	"strings"
	"testing"
)

func TestTheProfileTakesWhatTheDistributionHas(t *testing.T) {
	bare := appArmorProfile("", func(string) bool { return false })
	if strings.Contains(bare, "include") || strings.Contains(bare, "abi <") || !strings.Contains(bare, "@{PROC}=/proc/") {
		t.Errorf("without the distribution's files the profile is\n%s", bare)
	}
	full := appArmorProfile("monopod (enforce)\n", func(string) bool { return true })
	for _, want := range []string{"abi <abi/3.0>,", "#include <tunables/global>", "#include <abstractions/base>", "peer=monopod,"} {
		if !strings.Contains(full, want) {
			t.Errorf("no %q in\n%s", want, full)
		}
	}
	if strings.Count(appArmorProfile("unconfined\n", func(string) bool { return false }), "peer=unconfined,") != 1 {
		t.Error("the unconfined may send signals once, not twice")
	}
}
