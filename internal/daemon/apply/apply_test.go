package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/localapi"
	"monopod/runner/rollout"
)

var (
	webRef      = localapi.ObjectRef{Kind: "Pod", Namespace: "default", Name: "web"}
	settingsRef = localapi.ObjectRef{Kind: "ConfigMap", Namespace: "default", Name: "settings"}
)

func idOf(r localapi.ObjectRef) manifests.ObjectID {
	return manifests.ObjectID{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

func TestApplyStoresWhatHasChangedAndSaysWhat(t *testing.T) {
	t.Parallel()
	a := newApplier(t, nothing(t))
	for i, step := range []struct {
		texts        []string
		dryRun       bool
		told, stored string
	}{
		{[]string{webPod("one"), fmt.Sprintf(settings, "1")}, true, "pod/web created web; configmap/settings created", ""},
		{[]string{webPod("one"), fmt.Sprintf(settings, "1")}, false, "pod/web created web; configmap/settings created", "ConfigMap Pod"},
		{[]string{webPod("one"), fmt.Sprintf(settings, "2")}, false, "pod/web unchanged web; configmap/settings configured", "ConfigMap Pod"},
		{[]string{fmt.Sprintf(statefulSet, "2")}, false, "statefulset/db created db-0 db-1", "ConfigMap Pod"},
	} {
		r, err := a.Apply(t.Context(), localapi.ApplyRequest{Files: files(step.texts...), DryRun: step.dryRun})
		if got := told(r); err != nil || got != step.told {
			t.Errorf("step %d: %q, %v; want %q", i, got, err, step.told)
		}
		if got := stored(t, a, webRef, settingsRef); got != step.stored {
			t.Errorf("step %d: stored are %q, want %q", i, got, step.stored)
		}
	}
	if doc, err := a.Store.Get(idOf(settingsRef)); err != nil || !strings.Contains(string(doc), `"2"`) && !strings.Contains(string(doc), "a: 2") {
		t.Errorf("stored is %s, %v", doc, err)
	}
}

func TestTheAnswerHasTheHashThatThePodWillHave(t *testing.T) {
	t.Parallel()
	d := add(t, model.Desired{}, config.SourceApplied, "/a/web.yaml", webPod("one"))
	r, err := newApplier(t, d).Apply(t.Context(), localapi.ApplyRequest{Files: files(webPod("one")), DryRun: true})
	if err != nil || len(r.Objects) != 1 || len(r.Objects[0].Pods) != 1 || r.Objects[0].Pods[0].Manifest != rollout.Hash(d.Pods[0].Object) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestApplyRefusesAllFilesForOneMistake(t *testing.T) {
	t.Parallel()
	d := add(t, model.Desired{}, config.SourceFile, "/m/web.yaml", webPod("written")+"---\n"+fmt.Sprintf(settings, "1"))
	conflict, invalid := apierrors.IsConflict, apierrors.IsInvalid
	good := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n"
	for name, c := range map[string]struct {
		texts []string
		is    func(error) bool
		says  string
	}{
		"no YAML":                  {[]string{"{"}, invalid, "a.yaml"},
		"an unknown field":         {[]string{good + "dada: {a: b}\n"}, invalid, "dada"},
		"one pod twice":            {[]string{good, strings.ReplaceAll(webPod("1"), "web", "x"), strings.ReplaceAll(webPod("2"), "web", "x")}, invalid, "is already defined at b.yaml:1"},
		"one object twice":         {[]string{good, good}, invalid, "b.yaml:1: configmap default/good: is already defined at a.yaml:1; rename or remove one of them"},
		"a pod that a file has":    {[]string{good, webPod("other")}, conflict, "is defined in /m/web.yaml:1 already, which cannot be overridden"},
		"an object that it has":    {[]string{good, fmt.Sprintf(settings, "2")}, conflict, "is defined in /m/web.yaml:"},
		"several, all are named 1": {[]string{webPod("other"), fmt.Sprintf(settings, "2")}, conflict, "b.yaml:1"},
		"several, all are named 2": {[]string{webPod("other"), fmt.Sprintf(settings, "2")}, conflict, "a.yaml:1"},
	} {
		a := newApplier(t, d)
		r, err := a.Apply(t.Context(), localapi.ApplyRequest{Files: files(c.texts...)})
		if !c.is(err) || !strings.Contains(err.Error(), c.says) || len(r.Objects) > 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if got := stored(t, a, webRef, settingsRef, localapi.ObjectRef{Kind: "ConfigMap", Namespace: "default", Name: "good"}); got != "" {
			t.Errorf("%s: stored are %s", name, got)
		}
	}
}

func TestWhatIsImmutableIsReplacedOnlyAfterItsDeletion(t *testing.T) {
	t.Parallel()
	a := newApplier(t, nothing(t))
	apply := func(value string) error {
		_, err := a.Apply(t.Context(), localapi.ApplyRequest{Files: files(fmt.Sprintf(fixed, value))})
		return err
	}
	if err := apply("1"); err != nil {
		t.Fatal(err)
	}
	if err := apply("2"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "a.yaml:1") || !strings.Contains(err.Error(), "or delete it first") {
		t.Errorf("error %v", err)
	}
	r, err := a.Delete(t.Context(), localapi.DeleteRequest{Objects: []localapi.ObjectRef{settingsRef}})
	if err != nil || told(r) != "configmap/settings deleted" {
		t.Errorf("%s, %v", told(r), err)
	}
	if err := apply("2"); err != nil {
		t.Error(err)
	}
}

func TestTheOrderOfSourcesDecidesWhatApplyMayOverride(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ source, text, told string }{
		"the same as a file":              {config.SourceFile, webPod("one"), "pod/web created web (is defined in /m/web.yaml:1 too, which takes precedence until it is removed there)"},
		"other than a source that yields": {last, webPod("two"), "pod/web created web"},
	} {
		a := newApplier(t, add(t, model.Desired{}, c.source, "/m/web.yaml", c.text))
		r, err := a.Apply(t.Context(), localapi.ApplyRequest{Files: files(webPod("one"))})
		if got := told(r); err != nil || got != c.told || stored(t, a, webRef) != "Pod" {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.told)
		}
	}
}

func TestDeleteRemovesOnlyWhatWasApplied(t *testing.T) {
	t.Parallel()
	d := add(t, model.Desired{}, config.SourceFile, "/m/settings.yaml", fmt.Sprintf(settings, "1"))
	d = add(t, d, config.SourceApplied, "/a/web.yaml", webPod("one"))
	prepared := func() *Applier {
		a := newApplier(t, d)
		put(t, a, map[localapi.ObjectRef]string{webRef: canonical(t, webPod("one")), settingsRef: canonical(t, fmt.Sprintf(settings, "1"))})
		return a
	}
	unknown := localapi.ObjectRef{Kind: "Secret", Namespace: "default", Name: "x"}
	for name, c := range map[string]struct {
		request      localapi.DeleteRequest
		told, stored string
	}{
		"by name":          {localapi.DeleteRequest{Objects: []localapi.ObjectRef{webRef}}, "pod/web deleted web", "ConfigMap"},
		"by file":          {localapi.DeleteRequest{Files: files(webPod("another"))}, "pod/web deleted web", "ConfigMap"},
		"twice":            {localapi.DeleteRequest{Files: files(webPod("one")), Objects: []localapi.ObjectRef{webRef, webRef}}, "pod/web deleted web", "ConfigMap"},
		"not there":        {localapi.DeleteRequest{Objects: []localapi.ObjectRef{unknown}}, "secret/x not found", "ConfigMap Pod"},
		"only asked":       {localapi.DeleteRequest{Objects: []localapi.ObjectRef{webRef}, DryRun: true}, "pod/web deleted web", "ConfigMap Pod"},
		"in a file too":    {localapi.DeleteRequest{Objects: []localapi.ObjectRef{settingsRef}}, "configmap/settings deleted (continues to run: it is defined in /m/settings.yaml:1 too)", "Pod"},
		"nothing is named": {localapi.DeleteRequest{}, "", "ConfigMap Pod"},
	} {
		a := prepared()
		r, err := a.Delete(t.Context(), c.request)
		if got := told(r); err != nil || got != c.told {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.told)
		}
		if got := stored(t, a, webRef, settingsRef); got != c.stored {
			t.Errorf("%s: stored are %q, want %q", name, got, c.stored)
		}
	}
	a := newApplier(t, add(t, model.Desired{}, config.SourceFile, "/m/web.yaml", webPod("one")))
	_, err := a.Delete(t.Context(), localapi.DeleteRequest{Objects: []localapi.ObjectRef{unknown, webRef}})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "web is defined in /m/web.yaml:1; remove it there") {
		t.Errorf("what a file has: %v", err)
	}
	if _, err := a.Delete(t.Context(), localapi.DeleteRequest{Files: files("{")}); !apierrors.IsInvalid(err) {
		t.Errorf("a file that is no YAML: %v", err)
	}
}

func TestANameThatIsAPathIsRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []localapi.ObjectRef{{Kind: "Pod", Namespace: "default", Name: "/../../x"}, {Kind: "Pod", Namespace: "../x", Name: "y"}, {Kind: "/..", Name: "y"}} {
		if ids, err := deletedIDs(localapi.DeleteRequest{Objects: []localapi.ObjectRef{o}}); err == nil {
			t.Errorf("%+v is %v", o, ids)
		}
	}
}

// TestTheAnswerComesWhenTheNextRequestSeesTheChange: or when time is up, because the change is stored in any case.
func TestTheAnswerComesWhenTheNextRequestSeesTheChange(t *testing.T) {
	none := nothing(t)
	file := add(t, none, config.SourceFile, "/m/web.yaml", webPod("one"))
	web, other := add(t, none, config.SourceApplied, "/a/web.yaml", webPod("one")), map[localapi.ObjectRef]string{webRef: "other"}
	applying := func(a *Applier, ctx context.Context) error {
		_, err := a.Apply(ctx, localapi.ApplyRequest{Files: files(webPod("one"))})
		return err
	}
	deleting := func(a *Applier, ctx context.Context) error {
		_, err := a.Delete(ctx, localapi.DeleteRequest{Objects: []localapi.ObjectRef{webRef}})
		return err
	}
	for name, c := range map[string]struct {
		before model.Desired
		run    func(*Applier, context.Context) error
		// meanwhile happens after a second.
		meanwhile func(*Applier)
		want      time.Duration
	}{
		"applied, published":         {none, applying, func(a *Applier) { a.State.Publish(web) }, time.Second},
		"applied, another published": {none, applying, func(a *Applier) { a.State.Publish(add(t, none, config.SourceApplied, "/a/web.yaml", webPod("two"))) }, 2 * time.Second},
		"applied, then overridden": {none, applying, func(a *Applier) {
			a.State.Publish(overriding(add(t, none, config.SourceFile, "/m/web.yaml", webPod("two")), web))
		}, time.Second},
		"applied, in a file too, published": {file, applying, func(a *Applier) { a.State.Publish(overriding(file, web)) }, time.Second},
		"applied, in a file too, another published": {file, applying, func(a *Applier) {
			a.State.Publish(overriding(file, add(t, none, config.SourceApplied, "/a/web.yaml", webPod("two"))))
		}, 2 * time.Second},
		"applied, in a file too, nothing happens": {file, applying, func(*Applier) {}, 2 * time.Second},
		"deleted, in a file too, published":       {overriding(file, web), deleting, func(a *Applier) { a.State.Publish(file) }, time.Second},
		"applied, changed by another":             {none, applying, func(a *Applier) { put(t, a, other); a.State.Notify() }, time.Second},
		"applied, nothing happens":                {none, applying, func(*Applier) {}, 2 * time.Second},
		"deleted, published":                      {web, deleting, func(a *Applier) { a.State.Publish(none) }, time.Second},
		"deleted, applied by another":             {web, deleting, func(a *Applier) { put(t, a, other); a.State.Notify() }, time.Second},
		"deleted, nothing happens":                {web, deleting, func(*Applier) {}, 2 * time.Second},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			a := newApplierIn(dir, c.before)
			if len(c.before.Pods) > 0 {
				put(t, a, map[localapi.ObjectRef]string{webRef: canonical(t, webPod("one"))})
			}
			time.AfterFunc(time.Second, func() { c.meanwhile(a) })
			began := time.Now()
			if err := c.run(a, context.WithoutCancel(t.Context())); err != nil || time.Since(began) != c.want {
				t.Errorf("%s: after %v, %v; want %v", name, time.Since(began), err, c.want)
			}
		})
	}
}
