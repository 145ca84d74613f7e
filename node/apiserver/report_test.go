package apiserver

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node/apiserver/apitest"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/mirror"
)

// TestAMirrorThatTheListOmittedIsReplaced uses a server that has a mirror which it did not list: it was restarted meanwhile.
func TestAMirrorThatTheListOmittedIsReplaced(t *testing.T) {
	for _, c := range []struct {
		name, node string
		want       []string
	}{
		{"of this node", "n1", []string{"POST", "GET", "DELETE old", "POST"}},
		{"of another node", "n2", []string{"POST", "GET", "POST", "GET"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-n1", UID: "old", ResourceVersion: "7", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "earlier"}},
				Spec:       corev1.PodSpec{NodeName: c.node},
			}
			var requests []string
			kubeconfig := apitest.Liar(t, func(w http.ResponseWriter, r *http.Request) {
				request := r.Method
				switch r.Method {
				case http.MethodGet:
					_ = json.NewEncoder(w).Encode(old)
				case http.MethodDelete:
					var options metav1.DeleteOptions
					_ = json.NewDecoder(r.Body).Decode(&options)
					request += " " + string(*options.Preconditions.UID)
					old.Name = ""
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
				case http.MethodPost:
					if old.Name != "" {
						w.WriteHeader(http.StatusConflict)
						_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","message":"it exists","code":409}`)
						break
					}
					_, _ = io.Copy(w, r.Body)
				}
				requests = append(requests, request)
			})
			remote, err := client.Open(kubeconfig, "test", quiet())
			if err != nil {
				t.Fatal(err)
			}
			defer remote.Close()
			a := New(config(t, kubeconfig, newBoard(running("web"))))
			a.store.known, a.store.mirrors = true, map[manifests.Key]mirror.Mirror{}
			a.store.seeNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node"}})
			m := &mirrors{Agent: a, client: remote, cache: map[manifests.Key]mirror.Local{}, tries: map[manifests.Key]mirror.Try{}, waits: map[manifests.Key]*client.Waits{}}
			for len(requests) < len(c.want) {
				clear(m.tries) // the time to wait is over
				if _, err := m.once(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(requests, c.want) {
				t.Errorf("requests are %q, want %q", requests, c.want)
			}
		})
	}
}

func TestANodeThatTheListOmittedIsRead(t *testing.T) {
	kubeconfig := apitest.Liar(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","message":"it exists","code":409}`)
			return
		}
		_, _ = io.WriteString(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"there","resourceVersion":"7"}}`)
	})
	remote, err := client.Open(kubeconfig, "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	a := New(config(t, kubeconfig, newBoard()))
	a.store.seeNode(nil)
	if _, err := a.nodeOnce(t.Context(), remote, false); err != nil {
		t.Fatal(err)
	}
	if uid := a.store.nodeUID(); uid != "there" {
		t.Errorf("the uid is %q", uid)
	}
}
