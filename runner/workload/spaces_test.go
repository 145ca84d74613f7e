package workload

import (
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
)

// TestATemplateOfAnotherSpaceIsNotUsed: the first pod of a StatefulSet of fleet was made from the template of the local one of that name.
func TestATemplateOfAnotherSpaceIsNotUsed(t *testing.T) {
	const below = "  replicas: 1\n  updateStrategy: {rollingUpdate: {partition: 1}}\n"
	for _, c := range []struct{ source, history, pod string }{
		{"applied", "1=a 2=b", "web-0=a"}, // of the same space: the partition keeps the template
		{"fleet", "1=b", "web-0=b"},
	} {
		t.Run(c.source, func(t *testing.T) {
			w := newWorld(t, app("StatefulSet", "  replicas: 1\n", "a"))
			w.x.Spaces = &manifests.Spaces{Local: []string{"file", "applied"}}
			w.roll(app("StatefulSet", "  replicas: 1\n", "a"))
			content, err := decode.All("w.yaml", []byte(app("StatefulSet", below, "b")), decode.Options{Source: c.source})
			if err != nil {
				t.Fatal(err)
			}
			w.docs = content.Workloads
			w.step()
			w.restart()
			w.x.Spaces = &manifests.Spaces{Local: []string{"file", "applied"}}
			clear(w.pods) // its pod has to be made again
			w.step()
			w.want(c.pod)
			w.wantHistory("StatefulSet", c.history)
		})
	}
}
