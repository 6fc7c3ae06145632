"""Words by which somebody or something said before is meant, and those of living together, of kin, and of moving."""

from __future__ import annotations

from everosd.narrative import words


def _set(text: str) -> frozenset[str]:
    return frozenset(words.fold(word) for word in text.split())


INSIDE = _set("in into near nach aus en dans em im within")
"""Before a place."""
GERMAN_LEADS = INSIDE | _set("bei frau herr herrn namens")
TOWARDS = _set("to a à from de at au em vers hacia desde for nach")
"""Before a place or a person."""
PLACING = INSIDE | TOWARDS | words.LEADS_TO_NOUN
HIS = _set("""
his her hers its their theirs sein seine seinen seinem seiner seines ihr ihre ihren ihrem ihrer ihres son sa ses leur leurs su sus
""")
"""Most are of the one who begins the sentence, where it is the only one named."""
SELF = _set("he she er sie il elle él ella it")
"""So are these, behind a verb of saying."""
REFERS = (
    HIS
    | SELF
    | _set("""
he she they it him them here there both same together we us our you your yours i me my former latter other others another
er sie ihn ihm dort dorthin selbe gleiche beide beiden zusammen wir uns unser unsere dich dir dein deine dieser diese
il elle ils elles lui aussi même deux ensemble nous notre vous votre vos tu ton ta tes
él ella ellos ellas allí ahí mismo misma ambos ambas juntos juntas nosotros nuestro nuestra
lei loro suo sua suoi stesso insieme ele ela eles elas mesmo zij hij hun haar daar
""")
)
"""What refers to somebody or something said before."""
FIRST = _set("i me my mine ich mich mir mein je moi mon ma mes yo mi mis")
YOU = _set("""
you your yours we us our let's du dich dir dein deine ihr euch euer wir uns unser unsere tu toi ton ta tes vous votre vos nous notre nos
tú ti tu tus vosotros usted ustedes nosotros nuestro nuestra
""")
"""With these somebody speaks of whom they speak to, or of both."""
IT = _set("it that them there")
THERE = _set("""
it there here both same together they we latter former other dort dorthin ihn selbe gleiche beide beiden zusammen wir aussi même ensemble nous
ils elles allí ahí mismo misma ambos ambas juntos juntas nosotros ellos ellas stesso insieme loro mesmo daar
too also auch ebenfalls también anche também ook
""")
"""What refers to what the sentence before says."""
TOO = _set("too also auch ebenfalls también aussi anche também ook")
ALL = _set("we they both all everyone everybody family couple wir beide beiden alle familie paar nous ils elles tous famille couple"
            " ambos ambas todos familia pareja ellos ellas nosotros loro tutti famiglia eles")  # fmt: skip
PAIRED = _set("""
married marry marries wedding wife husband partner couple verheiratet heiratete heirateten geheiratet ehepaar épouse épousé mari marié mariés
compagne compagnon couple esposa marido casado casada casados casaron pareja
""")
WITH = _set("with together mit zusammen avec ensemble con juntos juntas")
"""With a word of living or moving: these do so together."""
RELATIVES = _set("""
sister brother sisters brothers mother father mom mum dad parents son daughter sons daughters child children wife husband partner friend
friends boss neighbour neighbor colleague colleagues cousin aunt uncle grandmother grandfather roommate flatmate team company dog cat
schwester bruder geschwister mutter vater eltern sohn tochter kinder kind frau mann partner partnerin freund freundin chef chefin nachbar nachbarin
kollege kollegin tante onkel oma opa hund katze soeur sœur frère mère père parents fils fille enfants enfant femme mari ami amie voisin voisine
collègue tante oncle chien chat hermana hermano madre padre padres hijo hija hijos esposa marido amigo amiga jefe jefa vecino vecina compañero
compañera tía tío perro gato
""")
APART = _set("""
than like unlike as when after before because since so that once although though if until where who which whose whom
comme lorsque quand après avant parce car que qui où dont depuis cuando como porque desde después antes donde que quien
""")
"""Between two names that need have nothing to do with one another."""
MOVE = _set("""
move moves moved moving relocate relocates relocated relocating zog zieht gezogen umgezogen umzog ziehen déménage déménagé déménagea
déménager installé installée mudó muda mudarse mudado mudada trasladó traslada trasferito trasferita mudou
""")
TO = _set("to nach à a au para")
STILL = _set(
    "still nach-wie-vor noch weiterhin toujours encore todavía aún sigue continúa ancora ainda continua remains"
)
LIVES = _set("lives live living wohnt lebt habite vit réside vive reside viviendo viven vivent wohnen abita mora woont")
PAST_LIVES = _set("lived wohnte wohnten lebte lebten habitait habitaient vivait vivaient vivía vivían abitava morava")
PAST = PAST_LIVES | _set("was were had hatte war était era estaba")
