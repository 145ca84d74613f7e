package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// services adds Services and their endpoints.
func services(all map[schema.GroupVersionKind]*table) {
	v1 := corev1.SchemeGroupVersion
	all[v1.WithKind("Service")] = show("Name,Type,Cluster-IP,External-IP,Port(s),Age,*Selector", func(o *corev1.Service, now time.Time) []any {
		ip := none
		if len(o.Spec.ClusterIPs) > 0 {
			ip = o.Spec.ClusterIPs[0]
		} else if o.Spec.ClusterIP != "" {
			ip = o.Spec.ClusterIP
		}
		return []any{o.Name, string(o.Spec.Type), ip, externalIP(o), servicePorts(o.Spec.Ports), created(o, now), labels.FormatLabels(o.Spec.Selector)}
	})
	all[v1.WithKind("Endpoints")] = show("Name,Endpoints,Age", func(o *corev1.Endpoints, now time.Time) []any {
		return []any{o.Name, shorten(endpointsOf(o), emptyEndpoints(o)), created(o, now)}
	})
	all[discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")] = show("Name,AddressType,Ports,Endpoints,Age",
		func(o *discoveryv1.EndpointSlice, now time.Time) []any {
			var ports, addresses []string
			for _, p := range o.Ports {
				text := "*"
				if p.Port != nil {
					text = strconv.Itoa(int(*p.Port))
				} else if p.Name != nil {
					text = *p.Name
				}
				ports = append(ports, text)
			}
			for _, e := range o.Endpoints {
				addresses = append(addresses, e.Addresses...)
			}
			return []any{o.Name, string(o.AddressType), shorten(ports, unset), shorten(addresses, unset), created(o, now)}
		})
}

func externalIP(o *corev1.Service) string {
	given := strings.Join(o.Spec.ExternalIPs, ",")
	switch o.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return cmp.Or(given, none)
	case corev1.ServiceTypeExternalName:
		return o.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var all []string
		for _, i := range o.Status.LoadBalancer.Ingress {
			if at := cmp.Or(i.IP, i.Hostname); at != "" {
				all = append(all, at)
			}
		}
		slices.Sort(all)
		return cmp.Or(strings.Join(append(slices.Compact(all), o.Spec.ExternalIPs...), ","), "<pending>")
	}
	return unknown
}

func servicePorts(ports []corev1.ServicePort) string {
	var all []string
	for _, p := range ports {
		text := strconv.Itoa(int(p.Port))
		if p.NodePort > 0 {
			text += ":" + strconv.Itoa(int(p.NodePort))
		}
		all = append(all, fmt.Sprintf("%s/%s", text, p.Protocol))
	}
	return cmp.Or(strings.Join(all, ","), none)
}

// endpointsOf lists the ready addresses with their ports; headless Services may have no ports.
func endpointsOf(o *corev1.Endpoints) []string {
	var all []string
	for _, s := range o.Subsets {
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				all = append(all, addressAndPort(a.IP, p.Port))
			}
		}
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				all = append(all, a.IP)
			}
		}
	}
	return all
}

// emptyEndpoints returns the cell that kubectl shows if no address is ready.
func emptyEndpoints(o *corev1.Endpoints) string {
	if len(o.Subsets) == 0 {
		return none
	}
	return ""
}
