package trusttest

import (
	"testing"

	"github.com/signalbox-dev/signalbox/client/admin"
)

// Trust has a cluster trust an issuer: each of its subjects is the identity ci, which may use
// /default.
func Trust(t testing.TB, a *admin.Client, i *Issuer) {
	t.Helper()
	_, err := a.CreateTrust(t.Context(), admin.Trust{Name: "ci", Issuer: Name, Audience: Audience})
	if err == nil {
		_, err = a.SetTrustKeys(t.Context(), "ci", i.Keys(t))
	}
	if err == nil {
		_, err = a.MapTrust(t.Context(), "ci", admin.TrustRule{As: "ci", If: []admin.TrustCondition{{Claim: "sub", Pattern: "*"}}})
	}
	if err == nil {
		_, err = a.Grant(t.Context(), "ci", "/default", "use")
	}
	if err != nil {
		t.Fatal(err)
	}
}
