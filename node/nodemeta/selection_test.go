package nodemeta_test

import (
	"testing"

	"monopod/node/nodemeta"
)

func TestLabelsAreThoseOfTheMachineAndThoseThatAreWritten(t *testing.T) {
	t.Parallel()
	s := &nodemeta.Selection{Name: "edge-1", Platform: map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}}
	if got := s.Labels(nodemeta.Metadata{}); got != nil {
		t.Errorf("none are written: %v", got)
	}
	if got := s.Labels(nodemeta.Metadata{Labels: map[string]string{"a": "b"}}); got["a"] != "b" || got["kubernetes.io/arch"] != "arm64" || got["kubernetes.io/hostname"] != "edge-1" || len(got) != 4 {
		t.Errorf("set by clients only: %v", got)
	}
	if got := s.Labels(nodemeta.Metadata{LabelsLost: true}); got["kubernetes.io/hostname"] != "edge-1" || len(got) != 3 {
		t.Errorf("lost: %v", got)
	}
	s.Configured = map[string]string{"disktype": "ssd", "kubernetes.io/hostname": "other"}
	set := map[string]string{"gpu": "none", "disktype": "hdd", "kubernetes.io/os": "other"}
	for _, labels := range []map[string]string{nil, set} {
		got := s.Labels(nodemeta.Metadata{Labels: labels})
		for label, want := range map[string]string{
			"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "kubernetes.io/hostname": "other", "disktype": "ssd", "gpu": labels["gpu"],
		} {
			if got[label] != want {
				t.Errorf("%s is %q, want %q", label, got[label], want)
			}
		}
	}
	if len(s.Configured) != 2 || len(s.Platform) != 2 || len(set) != 3 {
		t.Errorf("the sources were changed: %+v %v", s, set)
	}
	if got := (*nodemeta.Selection)(nil).Labels(nodemeta.Metadata{Labels: set}); got != nil {
		t.Errorf("no selection: %v", got)
	}
}
