"""What the claim controller and the garbage collector add to the API: generated claims, ends of reservations."""

from __future__ import annotations

from e2e.behaviour.claims import PROTECTION, allocated
from e2e.behaviour.subject import RESOURCE, Json, Subject, allocation, binding, claim, consumer, pod, request

ENTRY = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}


def template(name: str = "one-gpu") -> Json:
    spec = {"metadata": {"labels": {"from": "template"}}, "spec": {"devices": {"requests": [request()]}}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


async def pod_with_claim(api: Subject, name: str, **spec: object) -> tuple[Json, str]:
    """A Pod from the template, once its claim is there; the Pod as it is then and the claim's name."""
    await api.made(api.ns("pods"), pod(name, resourceClaims=[ENTRY], **spec))
    body = await api.eventually(api.ns("pods", name), lambda got: got.body["status"].get("resourceClaimStatuses"))
    (status,) = body["status"]["resourceClaimStatuses"]
    assert status["name"] == "gpu"
    return body, status["resourceClaimName"]


async def reserve(api: Subject, claim_name: str, owner: Json) -> None:
    """Allocates the claim and reserves it for the Pod, finalizer first, as a scheduler does."""
    assert (await api.patch(api.claims(claim_name), {"metadata": {"finalizers": [PROTECTION]}})).code == 200
    body = {"status": {"allocation": allocation(), "reservedFor": [consumer(owner)]}}
    assert (await api.patch(api.claims(claim_name, "status"), body)).code == 200


async def make_templates(api: Subject) -> None:
    await api.made(f"{RESOURCE}/namespaces/{api.namespace}/resourceclaimtemplates", template())


async def test_a_claim_is_made_from_its_template(api: Subject) -> None:
    """The claim is named after Pod and entry, annotated, labelled as the template says, and owned by the Pod."""
    await make_templates(api)
    owner, name = await pod_with_claim(api, "p")
    assert name.startswith("p-gpu-")
    made = (await api.get(api.claims(name))).body
    assert made["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert made["metadata"]["labels"] == {"from": "template"}
    (reference,) = made["metadata"]["ownerReferences"]
    assert reference == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


async def test_a_late_template_is_noticed(api: Subject) -> None:
    """A Pod that waits for its template gets an Event, and its claim once the template is there."""
    await api.made(api.ns("pods"), pod("p", resourceClaims=[ENTRY]))
    selector = "?fieldSelector=involvedObject.name%3Dp"
    events = await api.eventually(api.ns("events") + selector, lambda got: got.body["items"])
    (event,) = events["items"]
    assert (event["type"], event["reason"]) == ("Warning", "FailedResourceClaimCreation")
    assert 'resourceclaimtemplate.resource.k8s.io "one-gpu" not found' in event["message"]
    await make_templates(api)
    await api.eventually(api.ns("pods", "p"), lambda got: got.body["status"].get("resourceClaimStatuses"), 60)


async def test_a_finished_pod_gives_its_generated_claim_back(api: Subject) -> None:
    """When the Pod succeeds, its generated claim is released and deleted, finalizer or not."""
    await make_templates(api)
    owner, name = await pod_with_claim(api, "p")
    await reserve(api, name, owner)
    await api.post(api.ns("pods", "p", "binding"), binding("p", "n1"))
    await api.patch(api.ns("pods", "p", "status"), {"status": {"phase": "Succeeded"}})
    await api.eventually(api.claims(name), lambda got: got.code == 404)


async def test_a_deleted_pod_takes_its_generated_claim_along(api: Subject) -> None:
    """When the Pod is gone, so is its generated claim."""
    await make_templates(api)
    owner, name = await pod_with_claim(api, "p")
    await reserve(api, name, owner)
    await api.delete(api.ns("pods", "p"), {"gracePeriodSeconds": 0})
    await api.eventually(api.claims(name), lambda got: got.code == 404)


async def test_the_last_consumer_takes_the_allocation_along(api: Subject) -> None:
    """A named claim loses the reservation of a Pod that is gone; with the last one also allocation and finalizer."""
    await allocated(api, "c", "p1", "p2")
    await api.patch(api.claims("c"), {"metadata": {"finalizers": [PROTECTION]}})
    await api.delete(api.ns("pods", "p1"), {"gracePeriodSeconds": 0})
    left = await api.eventually(api.claims("c"), lambda got: len(got.body["status"]["reservedFor"]) == 1)
    assert left["status"]["reservedFor"][0]["name"] == "p2"
    assert left["status"]["allocation"] == allocation()
    await api.delete(api.ns("pods", "p2"), {"gracePeriodSeconds": 0})
    empty = await api.eventually(api.claims("c"), lambda got: "finalizers" not in got.body["metadata"])
    assert empty["status"] == {}


async def test_an_allocation_without_reservation_stays(api: Subject) -> None:
    """Deallocation happens on the transition only: a claim that was never reserved keeps its allocation."""
    await api.made(api.claims(), claim("never"))
    await api.patch(api.claims("never", "status"), {"status": {"allocation": allocation()}})
    await allocated(api, "c", "p")
    await api.patch(api.claims("c"), {"metadata": {"finalizers": [PROTECTION]}})
    await api.delete(api.ns("pods", "p"), {"gracePeriodSeconds": 0})
    await api.eventually(api.claims("c"), lambda got: got.body["status"] == {})
    assert (await api.get(api.claims("never"))).body["status"] == {"allocation": allocation()}


async def test_a_claim_without_the_finalizer_keeps_its_allocation(api: Subject) -> None:
    """The controller clears only allocations that its finalizer protects; the reservation goes either way."""
    await allocated(api, "c", "p")
    await api.delete(api.ns("pods", "p"), {"gracePeriodSeconds": 0})
    left = await api.eventually(api.claims("c"), lambda got: "reservedFor" not in got.body["status"])
    assert left["status"] == {"allocation": allocation()}


async def test_a_deleted_unreserved_claim_goes(api: Subject) -> None:
    """A claim that is deleted, allocated and not reserved is deallocated and loses its finalizer."""
    await api.made(api.claims(), claim("c"))
    await api.patch(api.claims("c"), {"metadata": {"finalizers": [PROTECTION]}})
    await api.patch(api.claims("c", "status"), {"status": {"allocation": allocation()}})
    await api.delete(api.claims("c"))
    await api.eventually(api.claims("c"), lambda got: got.code == 404)


async def test_a_reserved_claim_waits_for_its_consumer(api: Subject) -> None:
    """A deleted claim stays as long as a Pod holds it."""
    await allocated(api, "c", "p")
    await api.patch(api.claims("c"), {"metadata": {"finalizers": [PROTECTION]}})
    await api.delete(api.claims("c"))
    assert (await api.get(api.claims("c"))).body["metadata"]["deletionTimestamp"]
    await api.delete(api.ns("pods", "p"), {"gracePeriodSeconds": 0})
    await api.eventually(api.claims("c"), lambda got: got.code == 404)


async def test_a_pod_bound_past_the_scheduler_is_reserved_for(api: Subject) -> None:
    """An allocated, unreserved claim of a Pod that has a node gets the reservation from the controller."""
    await api.made(api.claims(), claim("c"))
    await api.patch(api.claims("c", "status"), {"status": {"allocation": allocation()}})
    entry = {"name": "gpu", "resourceClaimName": "c"}
    made = await api.made(api.ns("pods"), pod("p", resourceClaims=[entry]))
    await api.post(api.ns("pods", "p", "binding"), binding("p", "n1"))
    got = await api.eventually(api.claims("c"), lambda got: got.body["status"].get("reservedFor"))
    assert got["status"]["reservedFor"] == [consumer(made)]


async def test_dependents_of_a_deleted_owner_are_collected(api: Subject) -> None:
    """An object whose only owner is deleted goes too; one with another owner left stays."""
    owners = []
    for name in ("o1", "o2"):
        made = await api.made(api.ns("serviceaccounts"), {"metadata": {"name": name}})
        uid = made["metadata"]["uid"]
        owners.append({"apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": uid})
    for name, references in (("one", owners[:1]), ("two", owners)):
        metadata = {"name": name, "ownerReferences": references}
        await api.made(api.ns("secrets"), {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    await api.delete(api.ns("serviceaccounts", "o1"))
    await api.eventually(api.ns("secrets", "one"), lambda got: got.code == 404)
    assert (await api.get(api.ns("secrets", "two"))).code == 200
