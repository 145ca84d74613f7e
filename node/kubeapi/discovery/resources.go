package discovery

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/kinds"
)

// The types of apidiscovery.k8s.io/v2, in their JSON form. The Kubernetes package also links protobuf, which no client requests here.
type (
	groupList struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []group `json:"items"`
	}
	group struct {
		metav1.ObjectMeta `json:"metadata"`
		Versions          []version `json:"versions"`
	}
	version struct {
		Version   string     `json:"version"`
		Resources []resource `json:"resources"`
		Freshness string     `json:"freshness"`
	}
	resource struct {
		Resource     string                   `json:"resource"`
		ResponseKind *metav1.GroupVersionKind `json:"responseKind"`
		Scope        string                   `json:"scope"`
		Singular     string                   `json:"singularResource"`
		Verbs        []string                 `json:"verbs"`
		Short        []string                 `json:"shortNames,omitempty"`
		Categories   []string                 `json:"categories,omitempty"`
		Subresources []subresource            `json:"subresources,omitempty"`
	}
	subresource struct {
		Subresource  string                   `json:"subresource"`
		ResponseKind *metav1.GroupVersionKind `json:"responseKind"`
		Verbs        []string                 `json:"verbs"`
	}
)

// add adds a version to its group, which is created if missing.
func (l *groupList) add(gv schema.GroupVersion, resources []resource) {
	v := version{Version: gv.Version, Resources: resources, Freshness: "Current"}
	for i := range l.Items {
		if l.Items[i].Name == gv.Group {
			l.Items[i].Versions = append(l.Items[i].Versions, v)
			return
		}
	}
	l.Items = append(l.Items, group{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []version{v}})
}

// resourcesOf returns the resources of a version in both forms.
func resourcesOf(served kinds.Served, gv schema.GroupVersion) (plain []metav1.APIResource, aggregated []resource) {
	for _, k := range served.All() {
		if k.GroupVersion() != gv {
			continue
		}
		singular, scope := k.Singular, "Cluster"
		if k.Virtual {
			singular = strings.ToLower(k.Kind)
		}
		if k.Namespaced {
			scope = "Namespaced"
		}
		plain = append(plain, metav1.APIResource{
			Name: k.Plural, SingularName: singular, Namespaced: k.Namespaced, Kind: k.Kind, Verbs: k.Verbs, ShortNames: k.Short, Categories: k.Categories,
		})
		full := resource{
			Resource: k.Plural, ResponseKind: kindOf(k.GroupVersionKind), Scope: scope, Singular: singular, Verbs: k.Verbs, Short: k.Short, Categories: k.Categories,
		}
		for _, s := range k.Subresources {
			one := metav1.APIResource{Name: k.Plural + "/" + s.Name, Namespaced: k.Namespaced, Kind: s.Kind.Kind, Verbs: s.Verbs}
			if s.Kind.GroupVersion() != gv {
				one.Group, one.Version = s.Kind.Group, s.Kind.Version
			}
			plain = append(plain, one)
			full.Subresources = append(full.Subresources, subresource{Subresource: s.Name, ResponseKind: kindOf(s.Kind), Verbs: s.Verbs})
		}
		aggregated = append(aggregated, full)
	}
	return plain, aggregated
}

func kindOf(k schema.GroupVersionKind) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}
