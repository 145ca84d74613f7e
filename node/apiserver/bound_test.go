package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/mirror"
)

// scheduled is a pod as an API server has it, with all that it adds.
func scheduled(name string) *corev1.Pod {
	p := running(name)
	at := metav1.Now()
	p.CreationTimestamp, p.ResourceVersion, p.Generation, p.OwnerReferences = at, "7", 1, []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "1"}}
	p.Annotations["kubernetes.io/config.seen"] = "x"
	s := &p.Spec
	yes, seconds, mode, links, preempt, priority := true, int64(3607), int32(0o644), true, corev1.PreemptLowerPriority, int32(7)
	s.ServiceAccountName, s.DeprecatedServiceAccount, s.AutomountServiceAccountToken, s.EnableServiceLinks = "robot", "robot", &yes, &links
	s.PreemptionPolicy, s.Priority, s.PriorityClassName, s.SchedulerName = &preempt, &priority, "mine", "default-scheduler"
	s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}},
	}}}
	s.NodeSelector = map[string]string{"a": "b"}
	s.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	s.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	s.Containers[0].Env = []corev1.EnvVar{{Name: "PASS", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: "pass"}}}}
	s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
	s.Volumes = []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}}}}}
	return p
}

func TestABoundPodIsADocumentThatRunsHere(t *testing.T) {
	p := scheduled("web")
	before := p.DeepCopy()
	doc, objects, accounts := boundDocument(p)
	if before.String() != p.String() {
		t.Error("the pod is another one now")
	}
	if got, want := fmt.Sprint(objects), "[secrets default/pull configmaps default/settings secrets default/db configmaps default/kube-root-ca.crt]"; got != want {
		t.Errorf("%s", got)
	}
	if len(accounts) != 1 || accounts[0].name != "robot" || accounts[0].seconds != 3607 || accounts[0].uid != p.UID {
		t.Fatalf("%+v", accounts)
	}
	token := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: accounts[0].secret}, Data: map[string][]byte{tokenKey: []byte("x")}}
	body, tag, err := documents([]any{doc, token}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, other, err := documents([]any{token, doc}, nil); err != nil || other != tag || string(again) != string(body) {
		t.Errorf("%v %s", err, again)
	}
	got, err := decode.Parts("api", body, decode.Options{Source: mirror.SourceName})
	if err != nil || len(got.Pods) != 1 || len(got.Objects) != 1 || got.Pods[0].Object.UID != p.UID {
		t.Errorf("%+v %v", got, err)
	}
	if body, _, err = documents(nil, nil); err != nil {
		t.Fatal(err)
	}
	if got, err = decode.Parts("api", body, decode.Options{Source: mirror.SourceName}); err != nil || len(got.Pods) > 0 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestWhatIsDoneAboutABoundPod(t *testing.T) {
	pod := running("web")
	local := mirror.Local{Pod: pod, Digest: mirror.Digest(&pod.Status)}
	key := manifests.Key{Namespace: "default", Name: "web"}
	there := mirror.Mirror{UID: pod.UID, Other: true, Digest: local.Digest, Conditions: pod.Status.Conditions}
	leaving, stale := there, there
	leaving.Leaving, stale.Digest = true, "x"
	here := map[types.UID]mirror.Local{pod.UID: local}
	no := (&Refusal{Reason: mirror.ReasonNotSupported, Message: "why", pod: pod}).local()
	refused := there
	refused.Digest, refused.Conditions = no.Digest, no.Pod.Status.Conditions
	for name, tt := range map[string]struct {
		bound   map[types.UID]mirror.Local
		mirror  mirror.Mirror
		partial bool
		want    string
		refused bool
	}{
		"it is refused":                   {bound: map[types.UID]mirror.Local{}, mirror: there, refused: true, want: "[status default/web]"},
		"it is refused, and that is said": {bound: map[types.UID]mirror.Local{}, mirror: refused, refused: true, want: "[]"},
		"it is refused, and deleted":      {bound: map[types.UID]mirror.Local{}, mirror: leaving, refused: true, want: "[delete default/web]"},
		"it was refused, and runs":        {bound: here, mirror: there, refused: true, want: "[]"},

		"its status is shown":                 {bound: here, mirror: there, want: "[]"},
		"its status is another one":           {bound: here, mirror: stale, want: "[status default/web]"},
		"it is deleted, and still stops":      {bound: here, mirror: leaving, want: "[]"},
		"it is deleted, and has stopped":      {bound: map[types.UID]mirror.Local{}, mirror: leaving, want: "[delete default/web]"},
		"it is deleted, and may still run":    {bound: map[types.UID]mirror.Local{}, mirror: leaving, partial: true, want: "[]"},
		"it does not run yet":                 {bound: map[types.UID]mirror.Local{}, mirror: stale, want: "[]"},
		"another one of that name runs":       {bound: map[types.UID]mirror.Local{"other": local}, mirror: stale, want: "[]"},
		"such pods are not run here":          {mirror: stale, want: "[]"},
		"such pods are not run here, deleted": {mirror: leaving, want: "[]"},
	} {
		v := mirror.View{Now: time.Now(), Node: "node", Bound: tt.bound, Complete: !tt.partial, Mirrors: map[manifests.Key]mirror.Mirror{key: tt.mirror}}
		if tt.refused {
			v.Refused = map[types.UID]mirror.Local{pod.UID: no}
		}
		if got, _ := mirror.Plan(v); fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTokensAreReplacedBeforeTheyEnd(t *testing.T) {
	now := time.Unix(1000, 0)
	for life, want := range map[time.Duration]time.Duration{time.Hour: 48 * time.Minute, 10 * time.Minute: 8 * time.Minute, 365 * 24 * time.Hour: 24 * time.Hour, -time.Hour: time.Minute, 200 * 365 * 24 * time.Hour: 24 * time.Hour} {
		if got := tokenAgain(now, now.Add(life)).Sub(now); got != want {
			t.Errorf("%v: %v", life, got)
		}
	}
}

func TestBoundTellsWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(config(t, "", newBoard()))
		seen := ""
		ask := func(what, want string, after time.Duration) {
			t.Helper()
			began := time.Now()
			body, tag, err := a.Bound(t.Context(), seen)
			got := string(body)
			if err != nil {
				got = err.Error()
			} else {
				seen = tag
			}
			if !strings.Contains(got, want) || time.Since(began) != after {
				t.Errorf("%s: %q after %v", what, got, time.Since(began))
			}
		}
		later := func(d time.Duration, body, tag string, err error) {
			time.AfterFunc(d, func() { a.bindings.set([]byte(body), tag, err) })
		}
		ask("nothing is known yet", errBindingsUnknown.Error(), firstWait)
		later(time.Second, "one", "1", nil)
		ask("the first word", "one", time.Second)
		ask("nothing changes", ErrSame.Error(), longestWait)
		later(time.Second, "", "", errors.New("gone"))
		ask("nobody is there", "gone", time.Second)
		ask("still nobody", "gone", longestWait)
		later(time.Second, "one", "1", nil)
		ask("it is the same", ErrSame.Error(), time.Second)
		later(time.Second, "two", "2", nil)
		ask("it is another one", "two", time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := a.Bound(ctx, seen); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// What is on disk is what it is.
		b := New(config(t, "", newBoard()))
		b.bindings.set([]byte("one"), "1", nil)
		if _, _, err := b.Bound(t.Context(), "1"); !errors.Is(err, ErrSame) {
			t.Error(err)
		}
	})
}

// TestAPodWithUnreadableReferencesDoesNotBlockOthers binds two pods, one of which needs a Secret that cannot be read.
func TestAPodWithUnreadableReferencesDoesNotBlockOthers(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	path := liar(t, func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Base(r.URL.Path)
		if name == "bad" && broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcd is stuck","code":500}`)
			return
		}
		fmt.Fprintf(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":%q,"namespace":"default"},"data":{"k":"dg=="}}`, name)
	})
	local := newBoard()
	cfg := config(t, path, local)
	cfg.Source = true
	a := New(cfg)
	c, err := client.Open(path, "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a.store.known, a.store.others = true, map[manifests.Key]*corev1.Pod{}
	for _, name := range []string{"good", "bad"} {
		p := running(name)
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: name}}
		a.store.others[manifests.Key{Namespace: "default", Name: name}] = p
	}
	g := &gatherer{Agent: a, client: c, objects: map[object]*fetched{}, tokens: map[account]*token{}}
	pods := func() string {
		_, body, _, err := a.bindings.get()
		if err != nil {
			return err.Error()
		}
		got, err := decode.Parts("api", body, decode.Options{Source: mirror.SourceName})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d pods, %d objects", len(got.Pods), len(got.Objects))
	}
	if err := g.once(t.Context()); client.Code(err) != 500 || pods() != "1 pods, 1 objects" {
		t.Errorf("one cannot be told: %v; %s", err, pods())
	}
	local.put(running("bad"))
	if err := g.once(t.Context()); client.Code(err) != 500 || !strings.Contains(pods(), "etcd is stuck") {
		t.Errorf("it is here already, and must not be left out: %v; %s", err, pods())
	}
	broken.Store(false)
	if err := g.once(t.Context()); err != nil || pods() != "2 pods, 2 objects" {
		t.Errorf("it is mended: %v; %s", err, pods())
	}
	broken.Store(true)
	for _, f := range g.objects {
		f.again = time.Time{}
	}
	if err := g.once(t.Context()); err != nil || pods() != "2 pods, 2 objects" {
		t.Errorf("what was told counts for a while: %v; %s", err, pods())
	}
}
