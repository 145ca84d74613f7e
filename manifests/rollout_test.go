package manifests_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"monopod/manifests"
	"monopod/manifests/decode"
)

func TestPodRolloutReadsTheAnnotations(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n"
	const tail = "spec: {containers: [{name: c, image: i}]}\n"
	yes, no, deadline, soak := true, false, 90*time.Second, time.Duration(0)
	for _, tt := range []struct {
		name, annotations string
		want              manifests.Rollout
		err               string
	}{
		{"none", "    a: b\n", manifests.Rollout{}, ""},
		{"all", `    monopod.dev/auto-rollback: "true"
    monopod.dev/ready-deadline: 90s
    monopod.dev/soak: 0s
    monopod.dev/update-group: plane
    monopod.dev/update-order: "-3"
`, manifests.Rollout{AutoRollback: &yes, ReadyDeadline: &deadline, Soak: &soak, Group: "plane", Order: -3}, ""},
		{"off", `    monopod.dev/auto-rollback: "false"` + "\n", manifests.Rollout{AutoRollback: &no}, ""},
		{"neither", "    monopod.dev/auto-rollback: \"yes\"\n", manifests.Rollout{}, `metadata.annotations[monopod.dev/auto-rollback]: Invalid value: "yes": must be true or false`},
		{"a number", "    monopod.dev/soak: \"90\"\n", manifests.Rollout{}, "must be a duration, such as 90s or 5m"},
		{"no time", "    monopod.dev/ready-deadline: 0s\n", manifests.Rollout{}, "must be between 1s and 24h"},
		{"a path", "    monopod.dev/update-group: a/b\n", manifests.Rollout{}, "a lowercase RFC 1123 label"},
		{"a word", "    monopod.dev/update-order: first\n", manifests.Rollout{}, "must be an integer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pods, err := decode.Pods("f.yaml", []byte(head+tt.annotations+tail), decode.Options{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("Pods: %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := manifests.PodRollout(pods[0].Object)
			if err != nil || !cmp.Equal(got, tt.want) {
				t.Errorf("PodRollout: %v, %s", err, cmp.Diff(tt.want, got))
			}
		})
	}
}
