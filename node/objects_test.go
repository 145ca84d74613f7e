package node

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi/kinds"
	"monopod/node/localapi"
)

func TestDocumentsHaveOnlyWhatTheUserMaySee(t *testing.T) {
	objects := []metav1.Object{
		&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}},
		&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}},
	}
	shown := func(context.Context) (map[*kinds.Kind][]kinds.Object, map[*kinds.Kind]error) {
		return map[*kinds.Kind][]kinds.Object{kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Secret")): {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Type: "shown"}}}, nil
	}
	s := NewServer(Config{Shown: shown, Objects: func() []metav1.Object { return objects }, Visible: func(r *http.Request, o metav1.Object) bool {
		_, secret := o.(*corev1.Secret)
		return !secret || r.Header.Get("X-User") == "root"
	}})
	mux := http.NewServeMux()
	s.objectRoutes(mux)
	for user, secret := range map[string]bool{"root": true, "local": false} {
		get := func(query string) string {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, localapi.Self("documents")+query, nil)
			r.Header.Set("X-User", user)
			mux.ServeHTTP(w, r)
			return w.Body.String()
		}
		if table := get("?kind=Secret&as=Table"); strings.Contains(table, `"shown"`) != secret || !strings.Contains(table, `"kind":"Table"`) {
			t.Errorf("%s sees the table %s", user, table)
		}
		if body := get(""); strings.Contains(body, `"db"`) != secret || !strings.Contains(body, `"settings"`) {
			t.Errorf("%s sees %s", user, body)
		}
	}
}
