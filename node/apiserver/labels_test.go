package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/apitest"
	"monopod/node/apiserver/client"
	"monopod/node/nodemeta"
)

// TestLabelsOfClientsReachTheAPIServer: they are removed there once clients have removed them here, unlike labels of anyone else.
func TestLabelsOfClientsReachTheAPIServer(t *testing.T) {
	cfg := config(t, "", newBoard())
	facts := cfg.Facts()
	facts.Set = nodemeta.Metadata{
		Labels: map[string]string{"disk": "ssd", "site": "client", "node-role.kubernetes.io/worker": ""}, Annotations: map[string]string{"note": "a"},
	}
	want := reported(cfg.NodeName, cfg.Labels, cfg.Taints, &facts)
	if want.Labels["site"] != "lab" {
		t.Errorf("the configuration has no precedence: %v", want.Labels)
	}
	if _, refused := want.Labels["node-role.kubernetes.io/worker"]; refused || want.Annotations["note"] != "" || len(facts.Set.Labels) != 3 {
		t.Errorf("%v %v %v", want.Labels, want.Annotations, facts.Set)
	}
	have := planNode(time.Unix(0, 0), want, nil, false).Create
	if have.Labels["disk"] != "ssd" || have.Annotations[annotationLabels] != "disk,site" {
		t.Fatalf("%v %v", have.Labels, have.Annotations)
	}
	have.Labels["foreign"] = "kept"
	for _, row := range []struct {
		name, patch string
		labels      map[string]string
	}{
		{"the same", ``, facts.Set.Labels},
		{"another value", `{"metadata":{"labels":{"disk":"hdd"},"uid":""}}`, map[string]string{"disk": "hdd", "site": "client"}},
		{"one more", `{"metadata":{"annotations":{"monopod.dev/node-labels":"a,disk,site"},"labels":{"a":"b"},"uid":""}}`, map[string]string{"a": "b", "disk": "ssd", "site": "x"}},
		{"one less", `{"metadata":{"annotations":{"monopod.dev/node-labels":"site"},"labels":{"disk":null},"uid":""}}`, map[string]string{"site": "client"}},
		{"none", `{"metadata":{"annotations":{"monopod.dev/node-labels":null},"labels":{"disk":null},"uid":""}}`, nil},
	} {
		facts.Set.Labels = row.labels
		got := ""
		if patch := objectPatch(reported(cfg.NodeName, cfg.Labels, cfg.Taints, &facts), have); patch != nil {
			b, err := json.Marshal(patch)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != row.patch {
			t.Errorf("%s: %s, want %s", row.name, got, row.patch)
		}
	}
}

// TestOnlyLabelsThatANodeMaySetAreReported: a kube-apiserver with NodeRestriction refuses all changes of a Node that contain another one.
func TestOnlyLabelsThatANodeMaySetAreReported(t *testing.T) {
	for key, want := range map[string]bool{
		"disk": true, "example.com/disk": true, "node.kubernetes.io/x": true, "a.node.kubernetes.io/x": true, "kubelet.kubernetes.io/x": true,
		corev1.LabelTopologyZone: true, corev1.LabelInstanceTypeStable: true, "notkubernetes.io/x": true,
		"node-role.kubernetes.io/worker": false, "kubernetes.io/role": false, "k8s.io/x": false, "a.k8s.io/x": false,
		"node-restriction.kubernetes.io/x": false, "a.node-restriction.kubernetes.io/x": false,
	} {
		if maySet(key) != want {
			t.Errorf("%s: %v", key, !want)
		}
	}
}

func TestTheNodeHasWhatClientsHaveSet(t *testing.T) {
	facts := Facts{Set: nodemeta.Metadata{Labels: map[string]string{"disk": "ssd", "site": "x", corev1.LabelHostname: "other"}}}
	n := NewNode("n1", map[string]string{"site": "lab"}, nil, &facts)
	if n.Labels["disk"] != "ssd" || n.Labels["site"] != "lab" || n.Labels[corev1.LabelHostname] != "n1" {
		t.Errorf("%v", n.Labels)
	}
}

// TestLabelsOfTheAPIServerStayWhileThoseHereAreLost: a damaged file must not have a DaemonSet controller delete the pods of this machine.
func TestLabelsOfTheAPIServerStayWhileThoseHereAreLost(t *testing.T) {
	var patches []string
	kubeconfig := apitest.Liar(t, func(w http.ResponseWriter, r *http.Request) {
		if b, err := io.ReadAll(r.Body); err == nil && r.URL.Path == "/api/v1/nodes/n1" {
			patches = append(patches, string(b))
		}
		_, _ = io.WriteString(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u"}}`)
	})
	remote, err := client.Open(kubeconfig, "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	cfg := config(t, kubeconfig, newBoard())
	facts := cfg.Facts()
	cfg.Facts = func() Facts { return facts }
	a := New(cfg)
	facts.Set.Labels = map[string]string{"disk": "ssd", "role": "primary", "site": "client"}
	want := reported(cfg.NodeName, cfg.Labels, cfg.Taints, &facts)
	want.UID = "u"
	delete(want.Labels, "disk") // somebody has removed it there
	for _, row := range []struct {
		name, patches string
		set           nodemeta.Metadata
	}{
		{"lost", `[]`, nodemeta.Metadata{LabelsLost: true}},
		{
			"set again", `[{"metadata":{"annotations":{"monopod.dev/node-labels":"role"},"labels":{"role":"replica"},"uid":"u"}}]`,
			nodemeta.Metadata{Labels: map[string]string{"role": "replica"}},
		},
		{"none", `[{"metadata":{"annotations":{"monopod.dev/node-labels":null},"labels":{"role":null},"uid":"u"}}]`, nodemeta.Metadata{}},
	} {
		facts.Set, patches = row.set, nil
		a.store.seeNode(want.DeepCopy())
		if _, err := a.nodeOnce(t.Context(), remote, false); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(patches); strings.ReplaceAll(got, "\n", "") != row.patches {
			t.Errorf("%s: %s, want %s", row.name, got, row.patches)
		}
	}
	facts.Set = nodemeta.Metadata{LabelsLost: true}
	keepReported(reported(cfg.NodeName, cfg.Labels, cfg.Taints, &facts), nil) // nothing is reported yet
}
