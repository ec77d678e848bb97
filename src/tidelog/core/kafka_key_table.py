"""The table of Kafka 3.9's broker keys that BrokerConfig does not declare.

DescribeConfigs lists the keys of the table, as in Kafka, and AlterConfigs checks their values.
Source: ConfigDef and DynamicBrokerConfig of Kafka 3.9; a test compares this table with both
classes.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from tidelog.core.config_keys import ConfigType, floating, trim, whole_number

#: One key per line: name, type, default, range or choices, how the key may change while brokers
#: run, and whether the key is internal. A key marked `cluster` can be changed for all brokers or
#: for one broker. A key marked `broker` can be changed for one broker only. A key marked `listener`
#: can be changed for one listener of a broker, with the listener's prefix.
_TABLE: Final = """
advertised.listeners STRING null broker
alter.config.policy.class.name CLASS null
alter.config.policy.kraft.compatibility.enable BOOLEAN false
authorizer.class.name STRING ""
auto.include.jmx.reporter BOOLEAN true
background.threads INT 10 1.. cluster
broker.heartbeat.interval.ms INT 2000
broker.id.generation.enable BOOLEAN true
broker.session.timeout.ms INT 9000
client.quota.callback.class CLASS null
connection.failed.authentication.delay.ms INT 100 0..
connections.max.reauth.ms LONG 0
control.plane.listener.name STRING null
controller.listener.names STRING null
controller.quorum.append.linger.ms INT 25
controller.quorum.bootstrap.servers LIST ""
controller.quorum.election.backoff.max.ms INT 1000
controller.quorum.election.timeout.ms INT 1000
controller.quorum.fetch.timeout.ms INT 2000
controller.quorum.request.timeout.ms INT 2000
controller.quorum.retry.backoff.ms INT 20
controller.quorum.voters LIST ""
controller.quota.window.num INT 11 1..
controller.quota.window.size.seconds INT 1 1..
create.topic.policy.class.name CLASS null
delegation.token.expiry.check.interval.ms LONG 3600000 1..
delegation.token.expiry.time.ms LONG 86400000 1..
delegation.token.master.key PASSWORD null
delegation.token.max.lifetime.ms LONG 604800000 1..
delegation.token.secret.key PASSWORD null
delete.records.purgatory.purge.interval.requests INT 1
early.start.listeners STRING null
eligible.leader.replicas.enable BOOLEAN false
fetch.purgatory.purge.interval.requests INT 1000
group.consumer.assignors LIST org.apache.kafka.coordinator.group.assignor.UniformAssignor,org.\
apache.kafka.coordinator.group.assignor.RangeAssignor
group.consumer.heartbeat.interval.ms INT 5000 1..
group.consumer.max.heartbeat.interval.ms INT 15000 1..
group.consumer.max.session.timeout.ms INT 60000 1..
group.consumer.max.size INT 2147483647 1..
group.consumer.migration.policy STRING disabled internal
group.consumer.min.heartbeat.interval.ms INT 5000 1..
group.consumer.min.session.timeout.ms INT 45000 1..
group.consumer.session.timeout.ms INT 45000 1..
group.coordinator.append.linger.ms INT 10 0..
group.coordinator.new.enable BOOLEAN false internal
group.coordinator.rebalance.protocols LIST classic consumer|classic|share|unknown
group.coordinator.threads INT 1 1..
group.share.delivery.count.limit INT 5 2..10
group.share.enable BOOLEAN false internal
group.share.heartbeat.interval.ms INT 5000 1..
group.share.max.groups SHORT 10 1..100
group.share.max.heartbeat.interval.ms INT 15000 1..
group.share.max.record.lock.duration.ms INT 60000 30000..3600000
group.share.max.session.timeout.ms INT 60000 1..
group.share.max.size SHORT 200 10..1000
group.share.min.heartbeat.interval.ms INT 5000 1..
group.share.min.record.lock.duration.ms INT 15000 1000..30000
group.share.min.session.timeout.ms INT 45000 1..
group.share.partition.max.record.locks INT 200 100..10000
group.share.record.lock.duration.ms INT 30000 1000..60000
group.share.session.timeout.ms INT 45000 1..
initial.broker.registration.timeout.ms INT 60000
inter.broker.listener.name STRING null
kafka.metrics.polling.interval.secs INT 10 1..
kafka.metrics.reporters LIST ""
listener.security.protocol.map STRING SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,\
SASL_PLAINTEXT:SASL_PLAINTEXT broker
listeners STRING PLAINTEXT://:9092 broker
log.cleaner.threads INT 1 0.. cluster
log.dir STRING /tmp/kafka-logs
log.dirs STRING null
log.flush.scheduler.interval.ms LONG 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms INT 60000 0..
log.initial.task.delay.ms LONG 30000 0.. internal
log.retention.hours INT 168
log.retention.minutes INT null
log.roll.hours INT 168 1..
log.roll.jitter.hours INT 0 0..
max.connection.creation.rate INT 2147483647 0.. cluster
max.connections.per.ip INT 2147483647 0.. cluster
max.connections.per.ip.overrides STRING "" cluster
metadata.log.dir STRING null
metadata.log.max.record.bytes.between.snapshots LONG 20971520 1..
metadata.log.max.snapshot.interval.ms LONG 3600000 0..
metadata.log.segment.bytes INT 1073741824 12..
metadata.log.segment.min.bytes INT 8388608 12.. internal
metadata.log.segment.ms LONG 604800000
metadata.max.idle.interval.ms INT 500 0..
metadata.max.retention.bytes LONG 104857600
metadata.max.retention.ms LONG 604800000
metric.reporters LIST "" cluster
metrics.num.samples INT 2 1..
metrics.recording.level STRING INFO
metrics.sample.window.ms LONG 30000 1..
node.id INT -1
num.io.threads INT 8 1.. cluster
num.network.threads INT 3 1.. cluster
num.recovery.threads.per.data.dir INT 1 1.. cluster
offsets.commit.required.acks SHORT -1
password.encoder.cipher.algorithm STRING AES/CBC/PKCS5Padding
password.encoder.iterations INT 4096 1024..
password.encoder.key.length INT 128 8..
password.encoder.keyfactory.algorithm STRING null
password.encoder.old.secret PASSWORD null
password.encoder.secret PASSWORD null
principal.builder.class CLASS org.apache.kafka.common.security.authenticator.\
DefaultKafkaPrincipalBuilder broker
process.roles LIST ""
producer.id.expiration.check.interval.ms INT 600000 1.. internal
producer.purgatory.purge.interval.requests INT 1000
queued.max.requests INT 500 1..
quota.window.num INT 11 1..
quota.window.size.seconds INT 1 1..
remote.fetch.max.wait.ms INT 500 1.. cluster
remote.log.index.file.cache.total.size.bytes LONG 1073741824 1.. cluster
remote.log.manager.copier.thread.pool.size INT -1
remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 1.. cluster
remote.log.manager.copy.quota.window.num INT 11 1..
remote.log.manager.copy.quota.window.size.seconds INT 1 1..
remote.log.manager.expiration.thread.pool.size INT -1
remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 1.. cluster
remote.log.manager.fetch.quota.window.num INT 11 1..
remote.log.manager.fetch.quota.window.size.seconds INT 1 1..
remote.log.manager.task.interval.ms LONG 30000 1..
remote.log.manager.task.retry.backoff.max.ms LONG 30000 1.. internal
remote.log.manager.task.retry.backoff.ms LONG 500 1.. internal
remote.log.manager.task.retry.jitter DOUBLE 0.2 0..0.5 internal
remote.log.manager.thread.pool.size INT 10 1..
remote.log.metadata.custom.metadata.max.bytes INT 128 0..
remote.log.metadata.manager.class.name STRING org.apache.kafka.server.log.remote.metadata.storage.\
TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING null
remote.log.metadata.manager.impl.prefix STRING rlmm.config.
remote.log.metadata.manager.listener.name STRING null
remote.log.reader.max.pending.tasks INT 100 1..
remote.log.reader.threads INT 10 1..
remote.log.storage.manager.class.name STRING null
remote.log.storage.manager.class.path STRING null
remote.log.storage.manager.impl.prefix STRING rsm.config.
remote.log.storage.system.enable BOOLEAN false
replica.selector.class STRING null
replica.socket.receive.buffer.bytes INT 65536
reserved.broker.max.id INT 1000 0..
sasl.client.callback.handler.class CLASS null
sasl.enabled.mechanisms LIST GSSAPI broker
sasl.jaas.config PASSWORD null broker
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit broker
sasl.kerberos.min.time.before.relogin LONG 60000 broker
sasl.kerberos.principal.to.local.rules LIST DEFAULT broker
sasl.kerberos.service.name STRING null broker
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 broker
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 broker
sasl.login.callback.handler.class CLASS null
sasl.login.class CLASS null
sasl.login.connect.timeout.ms INT null
sasl.login.read.timeout.ms INT null
sasl.login.refresh.buffer.seconds SHORT 300 broker
sasl.login.refresh.min.period.seconds SHORT 60 broker
sasl.login.refresh.window.factor DOUBLE 0.8 broker
sasl.login.refresh.window.jitter DOUBLE 0.05 broker
sasl.login.retry.backoff.max.ms LONG 10000
sasl.login.retry.backoff.ms LONG 100
sasl.mechanism.controller.protocol STRING GSSAPI
sasl.mechanism.inter.broker.protocol STRING GSSAPI broker
sasl.oauthbearer.clock.skew.seconds INT 30
sasl.oauthbearer.expected.audience LIST null
sasl.oauthbearer.expected.issuer STRING null
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100
sasl.oauthbearer.jwks.endpoint.url STRING null
sasl.oauthbearer.scope.claim.name STRING scope
sasl.oauthbearer.sub.claim.name STRING sub
sasl.oauthbearer.token.endpoint.url STRING null
sasl.server.callback.handler.class CLASS null
sasl.server.max.receive.size INT 524288
security.inter.broker.protocol STRING PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL
security.providers STRING null
server.max.startup.time.ms LONG 9223372036854775807 0.. internal
socket.connection.setup.timeout.max.ms LONG 30000
socket.connection.setup.timeout.ms LONG 10000
socket.listen.backlog.size INT 50 1..
socket.receive.buffer.bytes INT 102400
socket.send.buffer.bytes INT 102400
ssl.allow.dn.changes BOOLEAN false
ssl.allow.san.changes BOOLEAN false
ssl.cipher.suites LIST "" broker
ssl.client.auth STRING none required|requested|none broker
ssl.enabled.protocols LIST TLSv1.2,TLSv1.3 broker
ssl.endpoint.identification.algorithm STRING https broker
ssl.engine.factory.class CLASS null broker
ssl.key.password PASSWORD null listener
ssl.keymanager.algorithm STRING SunX509 broker
ssl.keystore.certificate.chain PASSWORD null listener
ssl.keystore.key PASSWORD null listener
ssl.keystore.location STRING null listener
ssl.keystore.password PASSWORD null listener
ssl.keystore.type STRING JKS listener
ssl.principal.mapping.rules STRING DEFAULT
ssl.protocol STRING TLSv1.3 broker
ssl.provider STRING null broker
ssl.secure.random.implementation STRING null broker
ssl.trustmanager.algorithm STRING PKIX broker
ssl.truststore.certificates PASSWORD null listener
ssl.truststore.location STRING null listener
ssl.truststore.password PASSWORD null listener
ssl.truststore.type STRING JKS listener
telemetry.max.bytes INT 1048576 1..
transaction.abort.timed.out.transaction.cleanup.interval.ms INT 10000 1..
transaction.max.timeout.ms INT 900000 1..
transaction.partition.verification.enable BOOLEAN true cluster
transaction.remove.expired.transaction.cleanup.interval.ms INT 3600000 1..
transaction.state.log.load.buffer.size INT 5242880 1..
transaction.state.log.min.isr INT 2 1..
transaction.state.log.num.partitions INT 50 1..
transaction.state.log.replication.factor SHORT 3 1..
transaction.state.log.segment.bytes INT 104857600 1..
transactional.id.expiration.ms INT 604800000 1..
unclean.leader.election.interval.ms LONG 300000 1.. internal
unstable.api.versions.enable BOOLEAN false internal
unstable.feature.versions.enable BOOLEAN false internal
zookeeper.clientCnxnSocket STRING null
zookeeper.max.in.flight.requests INT 10 1..
zookeeper.metadata.migration.enable BOOLEAN false
zookeeper.metadata.migration.min.batch.size INT 200 1.. internal
zookeeper.session.timeout.ms INT 18000
zookeeper.ssl.cipher.suites LIST null
zookeeper.ssl.crl.enable BOOLEAN false
zookeeper.ssl.enabled.protocols LIST null
zookeeper.ssl.keystore.password PASSWORD null
zookeeper.ssl.keystore.type STRING null
zookeeper.ssl.ocsp.enable BOOLEAN false
zookeeper.ssl.protocol STRING TLSv1.2
zookeeper.ssl.truststore.password PASSWORD null
zookeeper.ssl.truststore.type STRING null
"""

#: The ways in which a key may change while brokers run.
_CHANGES: Final = ("cluster", "broker", "listener")


class KafkaKey(NamedTuple):
    """One key of Kafka. `default` is None if Kafka's default is null."""

    type: ConfigType
    default: str | None
    #: The bounds of a number, empty for no bound; or the allowed values of a text.
    range: str = ""
    #: How the key may change while brokers run: `cluster`, `broker` or `listener`; empty if only a
    #: restart changes it.
    changes: str = ""
    is_internal: bool = False

    def check(self, text: str) -> None:
        """Raise ValueError, which says what would be right, unless Kafka accepts this value."""
        text = trim(text)
        if self.type is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError("true or false expected")
        elif self.type in _BITS:
            bits = _BITS[self.type]
            self._check_number(whole_number(text), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        elif self.type is ConfigType.DOUBLE:
            self._check_number(floating(text), float("-inf"), float("inf"))
        elif self.range:
            words = self.range.split("|")
            found = [each.strip() for each in text.split(",")]
            if any(each not in words for each in found) or (
                self.type is ConfigType.STRING and len(found) > 1
            ):
                raise ValueError(f"{' or '.join(words)} expected")

    def _check_number(self, number: float, least: float, most: float) -> None:
        low, _, high = self.range.partition("..")
        if (low and number < float(low)) or (high and number > float(high)):
            expected = f"{low} to {high}" if high else f"at least {low}"
        elif least <= number <= most:
            return
        else:
            expected = f"{least} to {most}"
        raise ValueError(f"a number of {expected} expected")


_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@cache
def kafka_keys() -> dict[str, KafkaKey]:
    """Return every key of the table."""
    return {name: _key(*rest) for name, *rest in map(str.split, _TABLE.strip().split("\n"))}


def _key(kind: str, default: str, *more: str) -> KafkaKey:
    return KafkaKey(
        ConfigType[kind],
        None if default == "null" else default.strip('"'),
        next((word for word in more if ".." in word or "|" in word), ""),
        next((word for word in more if word in _CHANGES), ""),
        "internal" in more,
    )
