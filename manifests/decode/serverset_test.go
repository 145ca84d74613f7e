package decode

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/podhash"
)

// dumped is what `kubectl get -o yaml` writes into every object.
const dumped = `
  uid: 0b1c
  creationTimestamp: "2023-01-02T03:04:05Z"
  resourceVersion: "123"
  selfLink: /api/v1/x
  generation: 7
  managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]
`

const dumpedPod = `apiVersion: v1
kind: Pod
metadata:
  name: web` + dumped + `spec: {containers: [{name: c, image: app}]}
status:
  phase: Running
  podIP: 10.9.8.7
  podIPs: [{ip: 10.9.8.7}]
  startTime: "2023-01-02T03:04:05Z"
  fieldOfALaterVersion: {a: 1}
  conditions: [{type: Ready, status: "True", fieldOfALaterVersion: x}]
  containerStatuses:
  - {name: c, ready: true, restartCount: 3, image: app, imageID: x}
  - {name: old, ready: true, restartCount: 0, image: app, imageID: x}
`

const dumpedDeployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web` + dumped + `spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {creationTimestamp: null, labels: {a: b}}
    spec: {containers: [{name: c, image: app}]}
status: {replicas: 3, observedGeneration: 7, fieldOfALaterVersion: x}
`

const dumpedClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: web` + dumped + `spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
status: {phase: Bound, capacity: {storage: 1Gi}}
`

func TestWhatAServerHasObservedIsNotPartOfAManifest(t *testing.T) {
	asList := func(docs ...string) string {
		text := "apiVersion: v1\nkind: List\nitems:\n"
		for _, d := range docs {
			text += "- " + strings.ReplaceAll(strings.TrimSuffix(d, "\n"), "\n", "\n  ") + "\n"
		}
		return text
	}
	for _, tt := range []struct{ name, data string }{
		{"a pod", dumpedPod},
		{"a pod with nothing unknown", strings.NewReplacer("  fieldOfALaterVersion: {a: 1}\n", "", ", fieldOfALaterVersion: x", "").Replace(dumpedPod)},
		{"a workload", dumpedDeployment},
		{"an object", dumpedClaim},
		{"a list of them", asList(dumpedPod, dumpedDeployment, dumpedClaim)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := All("f.yaml", []byte(tt.data), Options{})
			if err != nil {
				t.Fatal(err)
			}
			var all []metav1.Object
			for _, p := range c.Pods {
				all = append(all, p.Object)
			}
			for _, o := range append(c.Objects, c.Workloads...) {
				all = append(all, o.Object)
			}
			if len(all) == 0 {
				t.Error("nothing was read")
			}
			for _, o := range all {
				if !reflect.ValueOf(o).Elem().FieldByName("Status").IsZero() {
					t.Errorf("%T has a status", o)
				}
				if !o.GetCreationTimestamp().Time.IsZero() || o.GetResourceVersion() != "" || o.GetSelfLink() != "" || o.GetGeneration() != 0 || o.GetManagedFields() != nil {
					t.Errorf("%T has metadata of a server: %+v", o, o)
				}
				if o.GetUID() != "0b1c" { // a kubelet takes the uid of a static pod from its manifest, too
					t.Errorf("%T has lost its uid", o)
				}
			}
		})
	}
}

func TestTheGenerationOfAnAPIServerCounts(t *testing.T) {
	pods, err := Pods("f.yaml", []byte(dumpedPod), Options{Author: AuthorAPIServer})
	if err != nil || pods[0].Object.Generation != 7 || !pods[0].Object.CreationTimestamp.IsZero() {
		t.Errorf("%v, %+v", err, pods)
	}
}

// TestAStatusIsOnlyCutWhereThereIsOne: in other objects it is a mistake, and it must be a mapping.
func TestAStatusIsOnlyCutWhereThereIsOne(t *testing.T) {
	for _, tt := range []struct{ data, want string }{
		{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\nstatus: {a: b}\n", "f:4:1: configmap default/c: status: unknown field"},
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: c}\nspec: {containers: [{name: c, image: app}]}\nstatus: Running\n", `f:5:9: pod default/c: status: expected a mapping, found the string "Running"`},
	} {
		if _, err := All("f", []byte(tt.data), Options{}); err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
}

// TestAPodHashOfAnOlderVersionIsThatOfThisOne: records of pods were written with all that a manifest said.
func TestAPodHashOfAnOlderVersionIsThatOfThisOne(t *testing.T) {
	pods, err := Pods("f.yaml", []byte(dumpedPod), Options{})
	if err != nil {
		t.Fatal(err)
	}
	recorded := pods[0].Object.DeepCopy()
	status := `{"metadata":{"creationTimestamp":"2023-01-02T03:04:05Z","resourceVersion":"5"},"status":{"phase":"Running"}}`
	if err := json.Unmarshal([]byte(status), recorded); err != nil || recorded.Status.Phase != corev1.PodRunning {
		t.Fatal(err)
	}
	if podhash.Pod(recorded) != podhash.Pod(pods[0].Object) {
		t.Error("the hashes differ")
	}
}
