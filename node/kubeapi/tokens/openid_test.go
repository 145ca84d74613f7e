package tokens_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
)

// verify verifies a token with a JSON Web Key Set and nothing else, as RFC 7515 and 7518 say.
func verify(t *testing.T, set []byte, token string) bool {
	t.Helper()
	var keys struct {
		Keys []map[string]string `json:"keys"`
	}
	if err := json.Unmarshal(set, &keys); err != nil {
		t.Fatal(err)
	}
	bytes := func(text string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	words := strings.Split(token, ".")
	var head map[string]string
	if err := json.Unmarshal(bytes(words[0]), &head); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(keys.Keys, func(k map[string]string) bool { return k["kid"] == head["kid"] })
	if at < 0 {
		return false
	}
	k := keys.Keys[at]
	if k["kty"] != "EC" || k["crv"] != "P-256" || k["alg"] != "ES256" || k["use"] != "sig" || head["alg"] != k["alg"] || len(k) != 7 {
		t.Errorf("key %v of header %v", k, head)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, bytes(k["x"]), bytes(k["y"])))
	if err != nil {
		t.Fatal(err)
	}
	sum, signature := sha256.Sum256([]byte(words[0]+"."+words[1])), bytes(words[2])
	return ecdsa.Verify(public, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
}

func TestOthersVerifyTokensWithTheKeySet(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before, err := m.start().KeySet() // creates the key
	if err != nil {
		t.Fatal(err)
	}
	i := m.start()
	token, _ := sign(t, i, time.Hour)
	if set, err := i.KeySet(); err != nil || string(set) != string(before) {
		t.Errorf("%s after a restart, was %s: %v", set, before, err)
	}
	if !verify(t, before, token) {
		t.Errorf("%s does not verify %s", before, token)
	}
	head, rest, _ := strings.Cut(token, ".")
	body, signature, _ := strings.Cut(rest, ".")
	if verify(t, before, head+"."+strings.ToUpper(body)+"."+signature) {
		t.Error("a changed token is verified")
	}
	if other, _ := sign(t, newMachine(t).start(), time.Hour); verify(t, before, other) {
		t.Error("the token of another machine is verified")
	}
}

func TestTheConfigurationNamesTheIssuerOfTokens(t *testing.T) {
	t.Parallel()
	have, err := newMachine(t).start().Configuration("https://192.0.2.1:6443")
	const want = `{"issuer":"https://kubernetes.default.svc","jwks_uri":"https://192.0.2.1:6443/openid/v1/jwks","response_types_supported":["id_token"],` +
		`"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256"]}`
	if err != nil || string(have) != want {
		t.Errorf("have %s, %v\nwant %s", have, err, want)
	}
}
