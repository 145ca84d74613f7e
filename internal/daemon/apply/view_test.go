package apply

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/runner/rollout"
)

// showing returns a view of a desired state in which clients see some pods.
func showing(d model.Desired, pods ...node.PodView) view { return newView(d, pods, true) }

// seen returns a pod as clients see it, created by a controller if that has a name.
func seen(name, kind, controller string, at manifests.Origin) node.PodView {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if controller != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: controller, Controller: new(true)}}
	}
	return node.PodView{Pod: p, Origin: at}
}

func TestWhereTheDefinitionOfAnObjectIs(t *testing.T) {
	t.Parallel()
	unread := manifests.Origin{Source: "unread", File: "/u/old.yaml", Line: 4}
	d := add(t, model.Desired{}, config.SourceFile, "/m/all.yaml", webPod("one")+"---\n"+fmt.Sprintf(settings, "1")+"---\n"+strings.ReplaceAll(fmt.Sprintf(deployment, "1"), "web", "app"))
	v := showing(
		d, seen("app-1", "Deployment", "app", manifests.Origin{}), seen("stray", "Deployment", "gone", manifests.Origin{Source: config.SourceFile, File: "/m/x.yaml"}),
		seen("old", "", "", unread), seen("leaving", "", "", manifests.Origin{Source: config.SourceFile, File: "/m/x.yaml"}), seen("nowhere", "", "", manifests.Origin{}),
	)
	pod := func(name string) manifests.ObjectID {
		return manifests.ObjectID{Kind: "Pod", Namespace: "default", Name: name}
	}
	for id, want := range map[manifests.ObjectID]string{
		pod("web"):        "defined in /m/all.yaml:1",
		idOf(settingsRef): "defined in /m/all.yaml:8",
		pod("app-1"):      "a pod of Deployment app, defined in /m/all.yaml:13",
		pod("old"):        "defined in /u/old.yaml:4 (not read since monopod started)",
		pod("stray"):      "", pod("leaving"): "", pod("nowhere"): "", pod("none"): "",
		{Kind: "ConfigMap", Namespace: "default", Name: "old"}: "",
	} {
		got, o := "", v.owner(id)
		if o.At.Source != "" {
			got = o.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	if pods := v.podsOf(manifests.ObjectID{Kind: "Deployment", Namespace: "default", Name: "app"}); len(pods) != 1 || pods[0].Name != "app-1" {
		t.Errorf("pods of the Deployment: %v", pods)
	}
	if pods := v.podsOf(manifests.ObjectID{Kind: "Deployment", Namespace: "other", Name: "app"}); len(pods) != 0 {
		t.Errorf("pods of a Deployment in another namespace: %v", pods)
	}
}

// TestAPodWithTheNameOfAnotherOneIsRefused: neither the pods of a workload nor those of a source that is not read yet can be overridden.
func TestAPodWithTheNameOfAnotherOneIsRefused(t *testing.T) {
	t.Parallel()
	d := add(t, model.Desired{}, last, "/l/app.yaml", strings.ReplaceAll(fmt.Sprintf(deployment, "1"), "web", "app"))
	unread := seen("web", "", "", manifests.Origin{Source: config.SourceFile, File: "/m/web.yaml", Line: 1})
	d.Reported[config.SourceFile] = false
	c, err := decode.All("a.yaml", []byte(webPod("one")), decode.Options{Source: config.SourceApplied})
	if err != nil {
		t.Fatal(err)
	}
	same := unread
	same.Manifest = rollout.Hash(c.Pods[0].Object)
	for name, c := range map[string]struct {
		shown node.PodView
		says  string
	}{
		"of a workload":            {seen("web", "Deployment", "app", manifests.Origin{}), "has the name of a pod of Deployment app, defined in /l/app.yaml:1; rename it"},
		"of an unread source":      {unread, "is defined in /m/web.yaml:1 (not read since monopod started) already, which cannot be overridden"},
		"the same as that one has": {same, ""},
	} {
		a := newApplier(t, d)
		content := a.read(files(webPod("one")))
		if len(content.errs) > 0 {
			t.Fatal(content.errs)
		}
		errs := a.owned(showing(d, c.shown), content.objects)
		if got := fmt.Sprint(errs); c.says == "" && len(errs) > 0 || !strings.Contains(got, c.says) {
			t.Errorf("%s: %s", name, got)
		}
		if told := content.objects[0].Warning; (c.says == "") != strings.Contains(told, "which takes precedence until it is removed there") {
			t.Errorf("%s: warning %q", name, told)
		}
	}
}

func TestTheAnswerNamesAnEarlierRevisionThatRuns(t *testing.T) {
	t.Parallel()
	rolledBack := seen("web", "", "", manifests.Origin{})
	rolledBack.Revision = node.RevisionView{Written: "hash", Rollback: "revision 1 runs instead of 2"}
	v := showing(model.Desired{}, rolledBack)
	for name, c := range map[string]struct {
		verdict        localapi.Verdict
		manifest, want string
	}{
		"unchanged":          {localapi.Unchanged, "hash", "revision 1 runs instead of 2"},
		"another manifest":   {localapi.Unchanged, "other", ""},
		"a change runs next": {localapi.Configured, "hash", ""},
	} {
		r := localapi.ApplyResult{Objects: []localapi.AppliedObject{{Verdict: c.verdict, Pods: []localapi.AppliedPod{{Namespace: "default", Name: "web", Manifest: c.manifest}}}}}
		if v.addRollbacks(r); r.Objects[0].Pods[0].Rollback != c.want {
			t.Errorf("%s: %q", name, r.Objects[0].Pods[0].Rollback)
		}
	}
}

func TestWhatWasAppliedIsVisibleOnceItsPodIs(t *testing.T) {
	t.Parallel()
	d := add(t, model.Desired{}, config.SourceApplied, "/a/web.yaml", webPod("one"))
	content := newApplier(t, d).read(files(webPod("one")))
	if len(content.errs) > 0 {
		t.Fatal(content.errs)
	}
	without, with := showing(d), showing(d, seen("web", "", "", d.Pods[0].Origin))
	web := content.objects[0]
	elsewhere := add(t, model.Desired{}, config.SourceFile, "/m/web.yaml", webPod("one"))
	unread, read := showing(elsewhere, seen("web", "", "", elsewhere.Pods[0].Origin)), showing(overriding(elsewhere, d), seen("web", "", "", elsewhere.Pods[0].Origin))
	if unread.shows(web) || !read.shows(web) || !unread.lacks(web.ID) || read.lacks(web.ID) {
		t.Error("an overridden definition counts before it has been read, or not once it has been")
	}
	if without.shows(web) || !with.shows(web) || showing(model.Desired{}).shows(web) {
		t.Error("the pod is shown before clients see it, or not when they do")
	}
	if without.visible = false; !without.shows(web) {
		t.Error("without a runtime nobody sees the pod, and it is waited for")
	}
}
