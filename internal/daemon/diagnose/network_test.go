package diagnose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/node/why"
)

func TestTheNetworkIsShownOfAPodThatWasAskedForAndWhereItMayBeTheCause(t *testing.T) {
	t.Parallel()
	pods := []why.Pod{
		{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}},
		{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "host"}, Spec: corev1.PodSpec{HostNetwork: true}}},
	}
	for name, tt := range map[string]struct {
		chain   why.Chain
		asked   bool
		network string
		want    bool
	}{
		"a pod":                          {why.Chain{Pod: "default/web"}, true, "n", true},
		"not set up":                     {why.Chain{Pod: "default/web"}, true, "", false},
		"a pod on the host network":      {why.Chain{Pod: "default/host"}, true, "n", false},
		"a name that is not known":       {why.Chain{Pod: "default/x"}, true, "n", false},
		"all, and one has no network":    {why.Chain{Pod: "default/web", Reason: cause.Network}, false, "n", true},
		"all, and one has another fault": {why.Chain{Pod: "default/web", Reason: cause.Drained}, false, "n", false},
		"all, and a file":                {why.Chain{Input: "file", Reason: cause.InputRefused}, false, "n", false},
	} {
		tt.chain.Steps = []why.Step{{Kind: why.Wanted}, {Kind: why.Runs}, {Kind: why.Cause}}
		a := why.Answer{Chains: []why.Chain{tt.chain}}
		addNetwork(&a, pods, tt.asked, tt.network)
		steps := a.Chains[0].Steps
		if got := len(steps) == 4 && steps[2].Kind == why.Network && steps[2].Text == tt.network; got != tt.want || !tt.want && len(steps) != 3 {
			t.Errorf("%s: %+v", name, steps)
		}
	}
}
