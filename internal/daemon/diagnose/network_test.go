package diagnose

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
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

func TestWhatAServiceDoesNotGetIsShown(t *testing.T) {
	t.Parallel()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	model.Refuse(s, "one", metav1.Time{})
	model.Refuse(s, "two", metav1.Time{})
	services := map[manifests.Key]*corev1.Service{{Namespace: "shop", Name: "web"}: s, {Namespace: "shop", Name: "fine"}: {}}
	pod := why.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}}
	for name, tt := range map[string]struct {
		chain string
		pods  []why.Pod
		want  string
	}{
		"a Service":                 {"shop/web", nil, "file one; two"},
		"one that has all":          {"shop/fine", nil, "file"},
		"a pod of that name":        {"shop/web", []why.Pod{pod}, "file"},
		"an object of another kind": {"shop/x", nil, "file"},
		"a file":                    {"", nil, "file"},
	} {
		a := why.Answer{Chains: []why.Chain{{Pod: tt.chain, Steps: []why.Step{{Kind: why.Wanted, Text: "file"}}}}}
		addRefusals(&a, tt.pods, services)
		var got []string
		for _, step := range a.Chains[0].Steps {
			got = append(got, step.Text)
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: %s, want %s", name, text, tt.want)
		}
	}
}
