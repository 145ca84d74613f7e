package decode

import (
	"testing"

	"monopod/manifests/policy"
)

// TestTheAPIAcceptsNamesThatAreNoImages: clients of the Kubernetes API expect such pods to report InvalidImageName, and no pod of a workload
// that was accepted is refused.
func TestTheAPIAcceptsNamesThatAreNoImages(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: 'bad image'}]}\n"
	for name, o := range map[string]Options{
		"stored by the API":    {Policy: policy.Policy{Rejects: true}},
		"made by a workload":   {Author: AuthorWorkload},
		"bound by a scheduler": {Author: AuthorAPIServer},
	} {
		if c, err := All("f", []byte(pod), o); err != nil || len(c.Pods) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := All("f", []byte(pod), Options{}); err == nil {
		t.Error("accepted from a file")
	}
}
