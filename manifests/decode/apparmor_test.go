package decode

import (
	"testing"
)

func TestAppArmorAnnotationsBecomeFields(t *testing.T) {
	const prefix = "container.apparmor.security.beta.kubernetes.io/"
	for _, tt := range []struct{ name, annotation, pod, want string }{
		{"the default profile", "runtime/default", "", "RuntimeDefault"},
		{"a loaded profile", "localhost/mine", "", "Localhost mine"},
		{"none", "unconfined", "", "Unconfined"},
		{"a loaded profile without a name", "localhost/", "", ""},
		{"the profile that the pod has", "unconfined", "appArmorProfile: {type: Unconfined}", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  annotations: {" + prefix + "c: " + tt.annotation + "}\n" +
				"spec:\n  securityContext: {" + tt.pod + "}\n  containers: [{name: c, image: i}, {name: other, image: i}]\n"
			pods, err := Pods("f", []byte(text), Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if s := pods[0].Object.Spec.Containers[0].SecurityContext; s != nil && s.AppArmorProfile != nil {
				got = string(s.AppArmorProfile.Type)
				if s.AppArmorProfile.LocalhostProfile != nil {
					got += " " + *s.AppArmorProfile.LocalhostProfile
				}
			}
			if got != tt.want || pods[0].Object.Spec.Containers[1].SecurityContext != nil {
				t.Errorf("the profile is %q, want %q", got, tt.want)
			}
		})
	}
}
