//go:build e2e

package apiserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/node/apiserver/apitest"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/identity"
	"monopod/node/events"
)

const requestsPath = client.CertificatesAPI + "/certificatesigningrequests"

// signs waits for a request and signs it.
func (r *rig) signs(what, signer string, life time.Duration) {
	r.t.Helper()
	r.Eventually(what, func() error {
		if r.Approve(signer, life) == 0 {
			return errors.New("there is no request")
		}
		return nil
	})
}

// may lets machines with a bootstrap token ask for certificates, as kubeadm does.
func (r *rig) may() {
	r.Must(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "bootstrap"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
		"subjects": []map[string]any{{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers"}},
	}, nil)
}

func TestAMachineJoinsWithATokenAndKeepsItsCertificates(t *testing.T) {
	r := newRig(t)
	pods := newBoard(running("web"))
	dir := t.TempDir()
	cfg := config(t, filepath.Join(dir, "kubeconfig"), pods)
	cfg.Bootstrap, cfg.Rotate, cfg.ServerTLS = r.BootstrapKubeconfig(r.Address), true, true
	var moved atomic.Bool
	facts := cfg.Facts
	cfg.Facts = func() Facts {
		f := facts()
		if moved.Load() {
			f.Addresses = NodeAddresses([]string{"127.0.0.1", "192.0.2.50"}, "n1")
		}
		return f
	}
	stop := start(t, cfg)
	// First it may not ask, then the server does not answer; neither ends the agent.
	r.Eventually("it is said why", func() error {
		if pods.trouble(manifests.Key{}) == "" {
			return errors.New("no trouble")
		}
		return nil
	})
	r.may()
	r.Eventually("it asks", func() error {
		var list certificatesv1.CertificateSigningRequestList
		r.Must(http.MethodGet, requestsPath, nil, &list)
		if len(list.Items) == 0 {
			return errors.New("there is no request")
		}
		return nil
	})
	// The agent ends before its request is answered; the next run continues with the same request.
	stop()
	stop = start(t, cfg)
	r.signs("the client certificate", certificatesv1.KubeAPIServerClientKubeletSignerName, 8*time.Second)
	r.shows("the mirror runs", webPath, isRunning)
	r.signs("the serving certificate", certificatesv1.KubeletServingSignerName, time.Hour)
	file := filepath.Join(cfg.CertDir, identity.ClientCertificateFile)
	first, err := identity.ReadCertificate(file)
	if err != nil {
		t.Fatal(err)
	}
	r.signs("the next client certificate", certificatesv1.KubeAPIServerClientKubeletSignerName, time.Hour)
	r.Eventually("it is stored", func() error {
		leaf, err := identity.ReadCertificate(file)
		if err == nil && leaf.Equal(first) {
			err = errors.New("it is the old one")
		}
		return err
	})
	r.Eventually("the old one has ended", func() error {
		if time.Now().Before(first.NotAfter) {
			return errors.New("it has not")
		}
		return nil
	})
	pods.put(with(running("web"), func(p *corev1.Pod) { p.Status.HostIP = "192.0.2.77" }))
	r.shows("the mirror is as the pod", webPath, func(p *corev1.Pod) bool { return p.Status.HostIP == "192.0.2.77" })
	if why := pods.trouble(manifests.Key{}); why != "" {
		t.Errorf("it is in trouble: %s", why)
	}
	serving, err := identity.ReadCertificate(filepath.Join(cfg.CertDir, identity.ServingCertificateFile))
	if err != nil || serving.VerifyHostname("127.0.0.1") != nil {
		t.Errorf("%v %v", serving, err)
	}
	moved.Store(true)
	r.signs("a serving certificate for the new address", certificatesv1.KubeletServingSignerName, time.Hour)
	r.Eventually("it is stored", func() error {
		leaf, err := identity.ReadCertificate(filepath.Join(cfg.CertDir, identity.ServingCertificateFile))
		if err == nil {
			err = leaf.VerifyHostname("192.0.2.50")
		}
		return err
	})
	stop()
	left, err := filepath.Glob(filepath.Join(cfg.CertDir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("%v %v", left, err)
	}
	for _, f := range append(left, cfg.Kubeconfig) {
		if st, err := os.Stat(f); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, st, err)
		}
	}
}

func TestEventsAreToldWithTheirCounts(t *testing.T) {
	r := newRig(t)
	pods := newBoard(running("web"))
	cfg := config(t, r.Kubeconfig(r.proxy.Address(), apitest.Node("n1")), pods)
	recorder := events.New(events.Config{Dir: filepath.Join(t.TempDir(), "events"), Node: "n1"})
	cfg.Events = recorder
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "web", UID: "uid-of-web"}
	stop := start(t, cfg)
	recorder.Event(about, corev1.EventTypeWarning, "BackOff", "it crashes")
	recorder.Event(events.InputRef("/etc/x.yaml"), corev1.EventTypeWarning, "InputRefused", "it is no object of theirs")
	find := func(count int32) func() error {
		return func() error {
			var list corev1.EventList
			r.Must(http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid%3Duid-of-web", nil, &list)
			if len(list.Items) == 1 && list.Items[0].Count == count && list.Items[0].InvolvedObject.Name == "web-n1" && list.Items[0].Reason == "BackOff" {
				return nil
			}
			return fmt.Errorf("%+v", list.Items)
		}
	}
	r.Eventually("the event is there", find(1))
	r.proxy.Set(apitest.Mode{Refuse: true})
	for range 4 {
		recorder.Event(about, corev1.EventTypeWarning, "BackOff", "it crashes")
	}
	r.proxy.Set(apitest.Mode{})
	r.Eventually("its count is raised", find(5))
	// Another run does not start over.
	stop()
	cfg.StatusEvery = time.Second
	start(t, cfg)
	recorder.Event(about, corev1.EventTypeWarning, "BackOff", "it crashes")
	r.Eventually("the same event is raised", find(6))
	r.testSimilarEvents(t, recorder, about)
	r.testHeartbeat(t)
}

// testSimilarEvents: of events that differ in their message only, the tenth stands for all that follow. The recorder keeps eight.
func (r *rig) testSimilarEvents(t *testing.T, recorder *events.Recorder, about corev1.ObjectReference) {
	told := 0
	for _, after := range []struct {
		events, objects int
		combined        int32
	}{{8, 8, 0}, {15, 10, 6}} {
		for ; told < after.events; told++ {
			recorder.Event(about, corev1.EventTypeWarning, "Unhealthy", fmt.Sprint("probe failed: pid ", told))
		}
		r.Eventually("similar events are combined", func() error {
			var list corev1.EventList
			r.Must(http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=reason%3DUnhealthy", nil, &list)
			combined := int32(0)
			for _, e := range list.Items {
				if strings.HasPrefix(e.Message, "(combined from similar events): probe failed") {
					combined += e.Count
				}
			}
			if len(list.Items) != after.objects || combined != after.combined {
				return fmt.Errorf("%d combined: %+v", combined, list.Items)
			}
			return nil
		})
	}
}

// testHeartbeat: a status that does not change is sent again and again.
func (r *rig) testHeartbeat(t *testing.T) {
	var first, now corev1.Node
	r.Must(http.MethodGet, nodePath, nil, &first)
	for range 2 {
		was := now.Status.Conditions
		r.Eventually("the node is heard of again", func() error {
			now = corev1.Node{}
			if err := r.Do(http.MethodGet, nodePath, nil, &now); err != nil {
				return err
			}
			if before := append(was, first.Status.Conditions...)[0]; !now.Status.Conditions[0].LastHeartbeatTime.After(before.LastHeartbeatTime.Time) {
				return fmt.Errorf("%+v", now.Status.Conditions)
			}
			return nil
		})
	}
	if a, b := first.Status.Conditions[0], now.Status.Conditions[0]; !a.LastTransitionTime.Equal(&b.LastTransitionTime) || a.Status != b.Status {
		t.Errorf("%+v, before it was %+v", b, a)
	}
}

func TestARealAPIServerSaysWhoMayDoWhat(t *testing.T) {
	r := newRig(t)
	a := New(config(t, r.Kubeconfig(r.Address, apitest.Node("n1")), newBoard()))
	c, err := client.Open(a.cfg.Kubeconfig, "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a.setClient(c)
	w := a.Webhook()
	who, ok, err := w.Authenticate(t.Context(), "joining-token")
	if err != nil || !ok || who.Username != "system:bootstrap:abcdef" {
		t.Errorf("%+v %v %v", who, ok, err)
	}
	if _, ok, err := w.Authenticate(t.Context(), "another"); ok || err == nil { // it says "invalid bearer token"
		t.Errorf("%v %v", ok, err)
	}
	if ok, _, err := w.Authorize(t.Context(), who, "get", "stats"); err != nil || ok {
		t.Errorf("%v %v", ok, err)
	}
	who.Groups = append(who.Groups, "system:masters")
	if ok, _, err := w.Authorize(t.Context(), who, "get", "stats"); err != nil || !ok {
		t.Errorf("%v %v", ok, err)
	}
}

// words is a log that is asked how often it has said something.
type words struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *words) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.text.String(), what)
}

// TestAMachineIsANodeAsSoonAsItsOwnAPIServerIsReady has a pod become ready while the next try is minutes away.
func TestAMachineIsANodeAsSoonAsItsOwnAPIServerIsReady(t *testing.T) {
	r := newRig(t)
	r.may()
	for name, bootstrap := range map[string]bool{"with a kubeconfig": false, "that has yet to join": true} {
		t.Run(name, func(t *testing.T) {
			pods, said := newBoard(running("web")), &words{}
			cfg := config(t, r.Kubeconfig(r.proxy.Address(), apitest.Node("n1")), pods)
			cfg.firstWait, cfg.lastWait, cfg.Log = 10*time.Minute, 10*time.Minute, slog.New(slog.NewTextHandler(said, nil))
			failures, failure := 2, "cannot list objects at the API server"
			if bootstrap {
				cfg.Kubeconfig, cfg.Bootstrap = filepath.Join(t.TempDir(), "kubeconfig"), r.BootstrapKubeconfig(r.proxy.Address())
				failures, failure = 1, "cannot report this machine to the API server"
			}
			r.proxy.Set(apitest.Mode{Refuse: true})
			stop := start(t, cfg)
			eventually(t, "it has failed", func() error {
				if n := said.count(failure); n < failures {
					return fmt.Errorf("%d of %d times", n, failures)
				}
				return nil
			})
			r.proxy.Set(apitest.Mode{})
			pods.put(running("kube-apiserver"))
			r.Eventually("it is a node", func() error {
				if bootstrap {
					r.Approve(certificatesv1.KubeAPIServerClientKubeletSignerName, time.Hour)
				}
				return r.Do(http.MethodGet, nodePath, nil, nil)
			})
			stop()
			r.Must(http.MethodDelete, nodePath, nil, nil)
		})
	}
}
