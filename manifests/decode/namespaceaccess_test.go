package decode

import (
	"fmt"
	"testing"

	"monopod/manifests"
	"monopod/manifests/policy"
)

// TestNamespacesLetTheirPodsUseTheAPI: as if the pods had the annotation.
func TestNamespacesLetTheirPodsUseTheAPI(t *testing.T) {
	const container = "containers: [{name: a, image: 'example.com/a:1'}]"
	pod := func(namespace, annotations string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: %s, annotations: {%s}}\nspec: {%s}\n", namespace, annotations, container)
	}
	forged := manifests.AnnotationNamespaceAccess + ": admin"
	given := policy.Policy{NamespaceAccess: map[string]string{"shop": "view", "default": "edit"}}
	for name, tt := range map[string]struct {
		text   string
		o      Options
		want   string // the right that the pod has
		volume bool
	}{
		"in the namespace":          {pod("shop", ""), Options{Policy: given}, "view", true},
		"in the default namespace":  {pod("''", ""), Options{Policy: given}, "edit", true},
		"in another":                {pod("other", forged), Options{Policy: given}, "", false},
		"its own":                   {pod("shop", manifests.AnnotationAPIAccess+": rules"), Options{Policy: given}, "rules", true},
		"forged":                    {pod("shop", forged), Options{Policy: given}, "view", true},
		"without configuration":     {pod("shop", forged), Options{}, "", false},
		"of an API server":          {pod("shop", forged), Options{Policy: given, Author: AuthorAPIServer}, "", false},
		"of a workload":             {pod("shop", manifests.AnnotationNamespaceAccess+": view"), Options{Author: AuthorWorkload}, "view", true},
		"of a source with baseline": {pod("shop", forged), Options{Policy: policy.Policy{PodSecurity: "baseline", NamespaceAccess: given.NamespaceAccess}}, "", false},
		"without a volume by choice": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\nspec: {automountServiceAccountToken: false, " + container + "}\n",
			Options{Policy: given},
			"view", false,
		},
	} {
		pods, err := Pods("f.yaml", []byte(tt.text), tt.o)
		if err != nil || len(pods) != 1 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p := pods[0].Object
		if got := manifests.APIAccess(p.Annotations); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if got := manifests.ShortestToken(&p.Spec) > 0; got != tt.volume {
			t.Errorf("%s: has a token: %v", name, got)
		}
		if got := p.Spec.ServiceAccountName; got != "default" && tt.want != "" {
			t.Errorf("%s: service account %q", name, got)
		}
	}
}

func TestNamespacesLetPodsOfWorkloadsUseTheAPI(t *testing.T) {
	const (
		spec     = "spec: {restartPolicy: Never, containers: [{name: a, image: 'example.com/a:1'}]}"
		template = "template: {metadata: {annotations: {" + manifests.AnnotationNamespaceAccess + ": admin}}, " + spec + "}"
	)
	for kind, text := range map[string]string{
		"Job":     "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: shop}\nspec: {" + template + "}\n",
		"CronJob": "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: j, namespace: shop}\nspec: {schedule: '* * * * *', jobTemplate: {spec: {" + template + "}}}\n",
	} {
		for namespace, want := range map[string]string{"shop": "view", "other": ""} {
			c, err := All("f.yaml", []byte(text), Options{Policy: policy.Policy{NamespaceAccess: map[string]string{namespace: "view"}}})
			if err != nil {
				t.Fatal(err)
			}
			found, _, _ := manifests.TemplateOf(c.Workloads[0].Object)
			if got := manifests.APIAccess(found.Annotations); got != want {
				t.Errorf("%s: %q, want %q", kind, got, want)
			}
		}
	}
}
